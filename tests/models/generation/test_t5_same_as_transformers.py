"""An encoder–decoder, from strings on both sides: it writes what `transformers` writes from the same directory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.models.generation.generator import continuation_scores, prompt_ids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = ["translate: the house is small", "the", "", "each name with the number of its line, and so on to the end"]
SOME_TEXT = ["translate the house is small and each name with the number of its line, and so on to the end of it"] * 4
PAD, END = 0, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with a Unigram vocabulary as T5 has it."""
    folder = tmp_path_factory.mktemp("t5")
    library = Library(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=specials, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(SOME_TEXT, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", END)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names).save_pretrained(folder)
    torch.manual_seed(6)
    config = transformers.T5Config(
        vocab_size=library.get_vocab_size(),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        initializer_factor=6.0,
        decoder_start_token_id=PAD,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path) -> tuple[Any, Any]:
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder: Path) -> lv.Model:
    return lv.load(folder, device="cpu")


def written(theirs: tuple[Any, Any], text: str, **settings: Any) -> tuple[int, ...]:
    """What they write, without the start token and padding."""
    model, tokenizer = theirs
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    row = model.generate(ids, do_sample=False, max_new_tokens=10, **settings)[0, 1:].tolist()
    return tuple(row[: row.index(END) + 1] if END in row else row)


@pytest.mark.parametrize("settings", [{}, {"beams": 2}, {"beams": 4, "length_penalty": 0.2, "early_stopping": True}])
def test_texts_are_theirs(theirs: tuple[Any, Any], ours: lv.Model, settings: dict[str, Any]) -> None:
    asked = {{"beams": "num_beams"}.get(name, name): value for name, value in settings.items()}
    generated = ours.generate(TEXTS, max_tokens=10, **settings)
    assert [each[0].ids for each in generated] == [written(theirs, text, **asked) for text in TEXTS]
    ids = [index for index in generated[0][0].ids if index != END]
    assert generated[0][0].whole == theirs[1].decode(ids).strip()


@torch.no_grad()
def test_likelihoods_are_theirs_and_those_of_what_was_written(theirs: tuple[Any, Any], ours: lv.Model) -> None:
    """In double precision but for the last step: logits of random weights are large, and so is what rounding costs."""
    for network in (ours.network, theirs[0]):
        network.double()
    generated = ours.generate(TEXTS, max_tokens=6)
    prompts = [prompt_ids(text, ours.tokenizer, closed=True) for text in TEXTS]
    scores = continuation_scores(ours.network, prompts, [np.array(each[0].ids) for each in generated])
    assert scores == pytest.approx([each[0].log_probability for each in generated], abs=1e-3)
    for prompt, each, score in zip(prompts, generated, scores, strict=True):
        labels = torch.tensor([each[0].ids])
        loss = theirs[0](input_ids=torch.tensor(prompt)[None], labels=labels).loss
        assert score == pytest.approx(-float(loss) * labels.numel(), abs=1e-3)
    for network in (ours.network, theirs[0]):
        network.float()


def test_a_prompt_longer_than_the_context_is_refused(ours: lv.Model) -> None:
    with pytest.raises(
        UsageError, match=r"^the prompt has [\d,]+ tokens, and the model's context is [\d,]+ tokens; shorten"
    ):
        ours.generate("the house " * (ours.encoder.reach + 1))
