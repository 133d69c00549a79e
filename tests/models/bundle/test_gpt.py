"""`transformers`' OpenAI GPT and GPT-2 load what we save and we load what they save; all compared from text on both
sides, through the tokenizers that stand in the directory."""

from __future__ import annotations

import json
from pydoc_data.topics import topics
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import add_delimiters
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, train_vocabulary
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn import on_device
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig
from tests.models.bundle.theirs import equal_tensors, scramble, transformers
from tests.tiny import save_model

PROSE = tuple(" ".join(part.split()) for part in topics["debugger"].split("\n\n"))
TEXTS = ["The debugger stops at the first line.", "naïve «quotes» 山", "it", "a b c d e f g h i j"]
SHAPE = {"n_positions": 64, "n_embd": 24, "n_layer": 3, "n_head": 3, "vocab_size": 400}
OURS = {"layers": 3, "hidden": 24, "heads": 3, "max_positions": 64}


def gpt_tokenizer() -> Any:
    """As published: no special token but <unk>, nothing around a text."""
    model = json.loads(train_vocabulary(PROSE, BPEConfig(size=400), allow_smaller=True).library.to_str())["model"]
    pieces = [piece for piece in model["vocab"] if piece not in ("<s>", "</s>", "<pad>", "<mask>")]
    library = Library(
        models.BPE(
            {piece: number for number, piece in enumerate(pieces)},
            [tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            end_of_word_suffix="</w>",
        )
    )
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, unk_token="<unk>")


def gpt2_tokenizer() -> Any:
    """As published: <|endoftext|> alone, which is never added."""
    model = json.loads(train_vocabulary(PROSE, ByteBPEConfig(size=400), allow_smaller=True).library.to_str())["model"]
    pieces = [piece for piece in model["vocab"] if not piece.startswith("<") or len(piece) == 1]
    pieces.append("<|endoftext|>")
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return transformers.GPT2Tokenizer(vocab=vocab, merges=[tuple(pair) for pair in model["merges"]])


FAMILIES = {
    "openai-gpt": (transformers.OpenAIGPTConfig, transformers.OpenAIGPTLMHeadModel, gpt_tokenizer),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel, gpt2_tokenizer),
}


def their_answers(model: Any, tokenizer: Any, texts: list[str]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model.eval()(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]


def our_batch(bundle: Bundle, texts: list[str]) -> Any:
    template = bundle.tokenizer.template
    return on_device(
        TokenBatch.of([template.single.ids(bundle.tokenizer.encode(t).ids).tolist() for t in texts]), "cpu"
    )


def our_words(bundle: Bundle, texts: list[str]) -> list[torch.Tensor]:
    batch, encoder = our_batch(bundle, texts), bundle.network.encoder
    with torch.no_grad():
        logits = bundle.network.objectives["causal-lm"].logits(encoder(batch), encoder.word_vectors)
    return list(torch.split(logits, batch.lengths.tolist()))


@pytest.mark.parametrize("family", FAMILIES)
def test_we_read_what_they_write(family, tmp_path):
    config, kind, tokenizer_of = FAMILIES[family]
    theirs, tokenizer = kind(config(**SHAPE)), tokenizer_of()
    scramble(theirs)
    theirs.tie_weights()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    bundle = load_bundle(tmp_path)
    assert bundle.tokenizer.template.special_ids == frozenset()
    for ours, other in zip(our_words(bundle, TEXTS), their_answers(theirs, tokenizer, TEXTS), strict=True):
        assert other.abs().max() > 0.5
        assert_close(ours, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "norm", "kind"), [("openai-gpt", "post", BPEConfig), ("gpt2", "pre", ByteBPEConfig)]
)
def test_they_read_what_we_write(family, norm, kind, tmp_path):
    tokenizer = train_vocabulary(PROSE, kind(size=400, frame="gpt"), allow_smaller=True)
    network = Network.build(CausalTransformerConfig(norm=norm, **OURS), [CausalLMConfig()], tokenizer.size, seed=2)
    scramble(network)
    save_model(tmp_path, network, tokenizer, [CausalLMConfig()])
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == family
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    again = load_bundle(tmp_path)
    answers = their_answers(theirs, their_tokenizer, TEXTS)
    for ours, other in zip(our_words(again, TEXTS), answers, strict=True):
        assert other.abs().max() > 0.5
        assert_close(ours, other, rtol=1e-4, atol=1e-4)
    equal_tensors(network, again.network)


def our_classes(bundle: Bundle, texts: list[str]) -> torch.Tensor:
    batch, head = our_batch(bundle, texts), bundle.network.objectives["classification"]
    with torch.no_grad():
        return head.eval().scores(bundle.network.encoder(batch), TrainingBatch(tokens=batch, targets={}))


@pytest.mark.parametrize("family", ["OpenAIGPT", "GPT2"])
def test_a_classifier_is_read_as_they_write_it(family, tmp_path):
    config = getattr(transformers, f"{family}Config")(**SHAPE, num_labels=3)
    theirs = getattr(transformers, f"{family}ForSequenceClassification")(config)
    scramble(theirs)
    tokenizer = gpt2_tokenizer() if family == "GPT2" else gpt_tokenizer()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    answers = torch.stack(their_answers(theirs, tokenizer, TEXTS))
    assert_close(our_classes(load_bundle(tmp_path), TEXTS), answers, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("norm", "kind"), [("post", BPEConfig), ("pre", ByteBPEConfig)])
def test_a_classifier_of_ours_reads_start_and_extract_token_there_too(norm, kind, tmp_path):
    tokenizer = add_delimiters(train_vocabulary(PROSE, kind(size=400, frame="gpt"), allow_smaller=True)).tokenizer
    head = ClassificationConfig(labels=("a", "b", "c"), pool="last", dense="none", bias=False)
    network = Network.build(CausalTransformerConfig(norm=norm, **OURS), [head], tokenizer.size, seed=2)
    scramble(network)
    save_model(tmp_path, network, tokenizer, [head])
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pair = their_tokenizer("one", "two").input_ids
    assert [their_tokenizer.convert_ids_to_tokens(i) for i in (pair[0], pair[-1])] == ["_start_", "_classify_"]
    assert pair.count(tokenizer.id("_delimiter_")) == 1
    answers = torch.stack(their_answers(theirs, their_tokenizer, TEXTS))
    assert_close(our_classes(load_bundle(tmp_path), TEXTS), answers, rtol=1e-4, atol=1e-4)
    padded = their_tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        assert_close(theirs.eval()(**padded).logits, answers, rtol=1e-4, atol=1e-4)


def test_the_model_alone_and_old_buffers_are_read(tmp_path):
    theirs, tokenizer = transformers.GPT2Model(transformers.GPT2Config(**SHAPE)), gpt2_tokenizer()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    buffers = {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file(load_file(tmp_path / "model.safetensors") | buffers, tmp_path / "model.safetensors")
    bundle = load_bundle(tmp_path)
    assert bundle.objectives == ()
    with torch.no_grad():
        other = theirs.eval()(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0]
        assert_close(bundle.network.encoder(our_batch(bundle, TEXTS[:1])), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        ({"norm": "post"}, "openai-gpt"),
        ({"norm": "pre"}, "gpt2"),
        ({"norm": "pre", "feedforward": 40, "activation": "gelu"}, "gpt2"),
        ({"norm": "post", "feedforward": 40}, "larvatus"),
        ({"norm": "post", "activation": "gelu"}, "larvatus"),
    ],
)
def test_each_is_written_in_the_layout_that_can_express_it(settings, layout):
    model = CausalTransformerConfig(**OURS, **settings)
    architecture = Architecture(model=model, objectives=(CausalLMConfig(),), vocabulary=400)
    assert layout_for(architecture, pad=None).model_type == layout


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"embd_pdrop": 0.2}, "embd_pdrop"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"activation_function": "swish"}, "activation_function"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2DoubleHeadsModel"),
        ({"n_head": 5}, "n_head|heads"),
    ],
)
def test_what_is_computed_otherwise_is_refused(field, said, tmp_path):
    theirs, tokenizer = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE)), gpt2_tokenizer()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | field))
    with pytest.raises(ArtefactError, match=said):
        load_bundle(tmp_path)
