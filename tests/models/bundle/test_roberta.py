"""RoBERTa and XLM-R directories, both ways: positions that begin at row 2 and a constant segment change no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from larvatus import load
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import (
    LIMIT,
    TEXTS,
    edit_weights,
    equal,
    half,
    read_by_both,
    scramble,
    their_directory,
    transformers,
)
from tests.tiny import save_model

SMALL = {**FAMILIES["roberta"][2], "layer_norm_eps": 1e-5}


@pytest.fixture
def byte_bpe(vocabularies: dict[str, Tokenizer]) -> Tokenizer:
    return vocabularies["byte-bpe"]


@pytest.fixture(params=["Roberta", "XLMRoberta"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tokenizer(family: str, vocabularies: dict[str, Tokenizer]) -> Tokenizer:
    return vocabularies["byte-bpe" if family == "Roberta" else "unigram"]


def saved_by_them(path: Path, tokenizer: Tokenizer, name: str = "RobertaForMaskedLM") -> tuple[Path, Any]:
    return their_directory(path, tokenizer, name, **SMALL)


def our_model(tokenizer: Tokenizer, **model: Any) -> Network:
    config = TransformerConfig(
        **{"layers": 2, "hidden": 16, "heads": 2, "segments": 0, "max_positions": LIMIT, "norm_epsilon": 1e-5, **model}
    )
    return scramble(Network.build(config, (MaskedLMConfig(),), tokenizer.size, 0))


def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path / "theirs", tokenizer, f"{family}ForMaskedLM")
    bundle = load_bundle(directory)
    assert (bundle.model.max_positions, bundle.model.segments) == (LIMIT, 0)
    assert bundle.objectives == (MaskedLMConfig(),)
    assert bundle.unused == ()
    equal(bundle.network, theirs, tokenizer)


def test_an_encoder_alone_loads_and_leaves_its_pooler(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path / "theirs", tokenizer, f"{family}Model")
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    assert bundle.unused == ("roberta.pooler.dense.bias", "roberta.pooler.dense.weight")
    equal(bundle.network, theirs, tokenizer)


def test_what_we_save_transformers_loads_with_equal_logits(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    model = getattr(transformers, f"{family}ForMaskedLM")
    read_by_both(tmp_path / "ours", our_model(tokenizer, feedforward=24), tokenizer, model)


def test_what_we_load_and_save_again_is_theirs_still(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path / "theirs", tokenizer, f"{family}ForMaskedLM")
    again = save_model(tmp_path / "again", load_bundle(directory).network, tokenizer)
    assert type(transformers.AutoModelForMaskedLM.from_pretrained(again)) is type(theirs)
    equal(load_bundle(again).network, theirs, tokenizer)


def test_their_tokenizer_gives_our_ids(tmp_path: Path, tokenizer: Tokenizer) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(save_model(tmp_path / "m", our_model(tokenizer), tokenizer))
    for text in [*TEXTS, " two  spaces ", "naïve\ncafé 🙂", "the river's"]:
        ids = tokenizer.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
        assert theirs(text)["input_ids"] == [tokenizer.cls_id, *ids, tokenizer.sep_id]
        assert theirs(text)["input_ids"] == encode_batch(tokenizer, [text]).ids.tolist()
    assert (theirs.mask_token_id, theirs.pad_token_id) == (tokenizer.mask_id, 1)


def test_blanks_of_a_loaded_directory_are_filled_as_transformers_would(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path / "theirs", byte_bpe)
    text = "Please turn your<mask> in."
    best = load(directory, device="cpu").fill(text, top=3)
    asked = transformers.AutoTokenizer.from_pretrained(directory)(text, return_tensors="pt")
    with torch.no_grad():
        log_V = theirs(input_ids=asked["input_ids"]).logits[asked["input_ids"] == byte_bpe.mask_id][0].log_softmax(-1)
    ordinary = [id for id in log_V.argsort(descending=True).tolist() if id not in byte_bpe.special_ids]
    assert [fill.id for fill in best] == ordinary[:3]
    assert [fill.probability for fill in best] == pytest.approx(log_V.exp()[ordinary[:3]].tolist(), rel=1e-3)


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As files of 2019 have them: a buffer of positions and copies of what is tied."""
    return {
        **tensors,
        "roberta.embeddings.position_ids": torch.arange(LIMIT + 2)[None],
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"].clone(),
        "lm_head.decoder.bias": tensors["lm_head.bias"].clone(),
    }


@pytest.mark.parametrize("change", [old_names, half])
def test_older_and_smaller_files_load_alike(
    tmp_path: Path, byte_bpe: Tokenizer, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    """Of half precision, the sum of position and segment is taken in float32, as it must not round again."""
    directory, theirs = saved_by_them(tmp_path / "theirs", byte_bpe)
    edit_weights(directory, change)
    equal(load_bundle(directory).network, theirs.half().float() if change is half else theirs, byte_bpe)


def test_an_untied_decoder_is_refused(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    directory, _ = saved_by_them(tmp_path / "theirs", byte_bpe)
    edit_weights(directory, lambda t: {**t, "lm_head.decoder.bias": t["lm_head.bias"] + 1})
    with pytest.raises(ArtefactError, match=r"decoder\.bias differs from"):
        load_bundle(directory)


@pytest.mark.parametrize(("kind", "layout"), [("byte-bpe", "roberta"), ("bpe", "roberta"), ("unigram", "xlm-roberta")])
def test_the_kind_of_vocabulary_tells_roberta_from_xlm_r(kind: str, layout: str) -> None:
    heads = (MaskedLMConfig(),)
    same = Architecture(model=TransformerConfig(segments=0), objectives=heads, vocabulary=300)
    assert layout_for(same, pad=1, vocabulary=kind).model_type == layout
    pairs = Architecture(model=TransformerConfig(segments=2), objectives=heads, vocabulary=300)
    assert layout_for(pairs, pad=1, vocabulary=kind).model_type == "bert"


@pytest.mark.parametrize(
    ("pad", "model", "layout"),
    [
        (1, {"segments": 0}, "roberta"),
        (0, {"segments": 0}, "distilbert"),  # RoBERTa would count positions from another row
        (0, {"segments": 0, "norm_epsilon": 1e-5}, "larvatus"),  # DistilBERT's norms add 1e-12
        (1, {"segments": 0, "activation": "relu"}, "distilbert"),  # RoBERTa's head has a GELU
        (1, {"segments": 0, "relative_buckets": 32}, "mpnet"),
        (0, {"segments": 0, "relative_buckets": 32}, "larvatus"),
        (1, {"segments": 0, "relative_buckets": 16}, "larvatus"),
        (1, {"segments": 0, "norm": "pre"}, "larvatus"),
        (1, {"segments": 1}, "bert"),
        (0, {}, "bert"),
    ],
)
def test_a_model_is_written_in_the_layout_that_computes_the_same(pad: int, model: dict[str, Any], layout: str) -> None:
    architecture = Architecture(model=TransformerConfig(**model), objectives=(MaskedLMConfig(),), vocabulary=300)
    assert layout_for(architecture, pad=pad).model_type == layout


def test_a_vocabulary_with_another_padding_id_is_saved_in_our_own_layout(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    directory = save_model(tmp_path / "m", our_model(tiny_tokenizer), tiny_tokenizer)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "larvatus"
    assert load_bundle(directory).model.segments == 0
