"""`transformers`' ModernBertForMaskedLM loads what we save and we load what it saves, with equal vectors and logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.rng import stream
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.bundle.huggingface.bert_like import BertLike
from larvatus.models.bundle.huggingface.modernbert import ModernBert
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from larvatus.models.recipes import SIZES, read_recipe
from tests.models.bundle.theirs import (
    edit_config,
    edit_weights,
    scramble,
    their_directory,
    theirs_from,
    transformers,
)
from tests.tiny import save_model

TEXT = "the river bank was wide and deep, please turn your homework in. 山 naïve the bank of the river " * 3
LENGTHS = [3, 31, 12, 12, 1, 40]  # most of them longer than the window, one as long as may be
SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "local_attention": 8,
}
MODEL = TransformerConfig(
    layers=5,
    hidden=24,
    heads=3,
    feedforward=20,
    norm="pre",
    norm_epsilon=1e-5,
    first_norm=False,
    positions="rotary",
    rotary_base=5000.0,
    rotary_base_local=100.0,
    gated=True,
    biases=False,
    local_attention=8,
    global_every=3,
    segments=0,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
    init=0.3,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([TEXT], ByteBPEConfig(size=290))


def batch_of(vocabulary: int) -> TokenBatch[Any]:
    draw = stream(4, "test modernbert")
    return TokenBatch.of([draw.integers(0, vocabulary, size=length).tolist() for length in LENGTHS])


def equal_to_theirs(network: Network, theirs: Any, vocabulary: int) -> None:
    batch = batch_of(vocabulary)
    rows = torch.split(torch.from_numpy(batch.ids), LENGTHS)
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.no_grad():
        answer = theirs.eval()(
            input_ids=pad(list(rows), batch_first=True), attention_mask=mask, output_hidden_states=True
        )
        states = network.eval().encoder(on_device(batch, "cpu"), layers=range(network.encoder.depth + 1))
        logits = network.objectives["masked-lm"].logits(states[-1], network.encoder.embeddings.words.weight)
        last = theirs.model(input_ids=pad(list(rows), batch_first=True), attention_mask=mask).last_hidden_state
    assert len(states) == len(answer.hidden_states) == len(network.encoder.blocks) + 1
    for ours, other in zip(states[:-1], answer.hidden_states[:-1], strict=True):
        assert_close(ours, other[mask.bool()], rtol=1e-4, atol=1e-4)
    assert_close(states[-1], last[mask.bool()], rtol=1e-4, atol=1e-4)
    assert logits.abs().max() > 0.5  # not equal for being nothing
    assert_close(logits, answer.logits[mask.bool()], rtol=1e-4, atol=1e-4)


def save(directory: Path, model: TransformerConfig, tokenizer: Tokenizer) -> Network:
    network = Network.build(model, [MaskedLMConfig()], tokenizer.size, seed=2)
    save_model(directory, scramble(network), tokenizer)
    return network


def changed(**fields: Any) -> TransformerConfig:
    return TransformerConfig(**{field: getattr(MODEL, field) for field in MODEL.__struct_fields__} | fields)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        changed(biases=True, activation="gelu-tanh", feedforward=0),
        changed(local_attention=0, global_every=1, activation="relu"),
        changed(layers=2, global_every=7),
    ],
    ids=["modern", "biases", "global", "two layers"],
)
def test_what_we_save_transformers_loads_with_equal_vectors_and_logits(
    tmp_path: Path, tokenizer: Tokenizer, model: TransformerConfig, attention: str
) -> None:
    network = save(tmp_path / "m", model, tokenizer)
    theirs = theirs_from(transformers.AutoModelForMaskedLM, tmp_path / "m", attn_implementation=attention)
    assert type(theirs) is transformers.ModernBertForMaskedLM
    equal_to_theirs(network, theirs, tokenizer.size)
    again = load_bundle(tmp_path / "m")
    assert again.model == model
    assert again.objectives == (MaskedLMConfig(),)
    equal_to_theirs(again.network, theirs, tokenizer.size)


def test_their_tokenizer_feeds_their_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save(tmp_path / "m", MODEL, tokenizer)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    asked = words("the river was naïve", return_tensors="pt")
    ids = tokenizer.encode("the river was naïve").ids.tolist()
    assert asked["input_ids"][0].tolist() == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    theirs = transformers.ModernBertForMaskedLM.from_pretrained(tmp_path / "m")
    with torch.no_grad():
        assert theirs(**asked).logits.shape == (1, len(ids) + 2, tokenizer.size)


def saved_by_them(path: Path, tokenizer: Tokenizer, head: str = "ModernBertForMaskedLM") -> tuple[Path, Any]:
    fields = {"pad": tokenizer.padding_id, "bos": None, "eos": None, "cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
    tokens = {f"{role}_token_id": index for role, index in fields.items()}
    return their_directory(path / "theirs", tokenizer, head, **SMALL, **tokens)


def test_what_transformers_saves_we_load_with_equal_vectors_and_logits(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path, tokenizer)
    bundle = load_bundle(directory)
    assert (bundle.model.local_attention, bundle.model.global_every, bundle.model.biases) == (8, 3, False)
    assert (bundle.model.rotary_base, bundle.model.rotary_base_local) == (160_000.0, 10_000.0)
    assert bundle.unused == ()
    equal_to_theirs(bundle.network, theirs, tokenizer.size)


def test_the_fields_of_published_configs_are_read_too(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """As answerdotai/ModernBERT-base has them: no list of layers, no rope_parameters; and the tied matrix twice."""
    directory, theirs = saved_by_them(tmp_path, tokenizer)
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    edit_config(directory, "layer_types", "rope_parameters", **old)
    tied = "model.embeddings.tok_embeddings.weight"
    edit_weights(directory, lambda tensors: tensors | {"decoder.weight": tensors[tied].clone()})
    equal_to_theirs(load_bundle(directory).network, theirs, tokenizer.size)


def test_a_bare_encoder_loads_without_a_head(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path, tokenizer, "ModernBertModel")
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    ids = batch_of(tokenizer.size)
    one = torch.from_numpy(ids.ids[3:34])[None]
    with torch.no_grad():
        ours: Tensor = bundle.network.encoder(on_device(ids, "cpu"))
        assert_close(ours[3:34], theirs.eval()(input_ids=one).last_hidden_state[0], rtol=1e-4, atol=1e-4)


def test_each_model_goes_into_the_first_layout_that_can_express_it() -> None:
    def layout(model: TransformerConfig, *heads: Any) -> str:
        return layout_for(Architecture(model=model, objectives=heads, vocabulary=100), pad=0).model_type

    for size in SIZES:
        assert layout(read_recipe("modern", size=size).model, MaskedLMConfig()) == "modernbert"
        assert layout(read_recipe("bert", size=size).model, MaskedLMConfig()) == "bert"
    assert layout(TransformerConfig(norm="pre"), MaskedLMConfig()) == "larvatus"
    assert layout(MODEL, NextSentenceConfig()) == "larvatus"
    for field in ("biases", "gated", "positions", "norm"):
        plain = {"norm": "pre"} if field == "norm" else {field: getattr(MODEL, field)}
        wants = Architecture(model=TransformerConfig(**plain), objectives=(MaskedLMConfig(),), vocabulary=9)
        assert field in (BertLike().unsupported(wants) or "")
    for field in ("dropout", "attention_dropout", "segments"):
        other = Architecture(
            model=changed(**{field: 1 if field == "segments" else 0.1}), objectives=(MaskedLMConfig(),), vocabulary=9
        )
        assert field in (ModernBert().unsupported(other) or "")
