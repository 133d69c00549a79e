from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.rng import stream
from larvatus.models.nn import Transformer, TransformerConfig, initialise, on_device
from larvatus.models.nn.block_stack import post_norm, pre_norm
from larvatus.models.nn.dropout import Dropout

TINY = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=32, dropout=0.1, attention_dropout=0.1)


def encoder(config: TransformerConfig = TINY, vocabulary: int = 50) -> Transformer:
    model = Transformer(config, vocabulary).eval()
    initialise(model, seed=3, std=0.2)
    return model


def sentences(lengths: list[int], item: int = 0) -> list[list[int]]:
    draw = stream(1, "test sentences", 0, item)
    return [draw.integers(0, 50, size=length).tolist() for length in lengths]


def vectors(model: Transformer, rows: list[list[int]]) -> list[torch.Tensor]:
    segments = [[i % 2 for i in range(len(row))] for row in rows]
    batch = on_device(TokenBatch.of(rows, segments=segments), "cpu")
    with torch.no_grad():
        return list(model(batch).split([len(row) for row in rows]))


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 32), min_size=1, max_size=9), norm=st.sampled_from(["post", "pre"]))
def test_the_batch_a_sequence_comes_in_never_changes_its_vectors(lengths: list[int], norm: str) -> None:
    model = encoder(msgspec.structs.replace(TINY, norm=norm))
    rows = sentences(lengths)
    for row, together in zip(rows, vectors(model, rows), strict=True):
        assert_close(together, vectors(model, [row])[0], rtol=0.0, atol=1e-5)


def test_hidden_states_are_those_of_every_layer_in_the_order_of_the_batch() -> None:
    model, rows = encoder(), sentences([5, 2, 9])
    batch = on_device(TokenBatch.of(rows), "cpu")
    with torch.no_grad():
        states = model(batch, layers=range(model.depth + 1))
        assert len(states) == 3
        assert_close(states[0], model.embeddings(batch))
        assert_close(states[-1], model(batch))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_parameter_learns(norm: str) -> None:
    model = encoder(msgspec.structs.replace(TINY, norm=norm)).train()
    batch = on_device(TokenBatch.of(sentences([5, 2, 9]), segments=[[0] * 5, [1] * 2, [0] * 9]), "cpu")
    model(batch).pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("qkv.bias"):  # the key's part of it has no effect: softmax does not see a constant
            assert parameter.grad.abs().sum() > 0, name


def test_post_norm_and_pre_norm_are_what_the_papers_write() -> None:
    x = torch.tensor([2.0])
    layer, norm, dropout = (lambda v: v + 1), (lambda v: v * 10), (lambda v: -v)
    assert post_norm(x, layer, norm, dropout).item() == 10 * (2 - (2 + 1))
    assert pre_norm(x, layer, norm, dropout).item() == 2 - (10 * 2 + 1)


def test_parameter_names_are_the_contract_with_bundles() -> None:
    post = {name for name, _ in Transformer(msgspec.structs.replace(TINY, layers=1), 50).named_parameters()}
    pre = {name for name, _ in Transformer(msgspec.structs.replace(TINY, layers=1, norm="pre"), 50).named_parameters()}
    layers = [
        "attention.qkv",
        "attention.out",
        "attention_norm",
        "feedforward.up",
        "feedforward.down",
        "feedforward_norm",
    ]
    linear = [f"blocks.0.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    embeddings = ["words.weight", "positions.weight", "segments.weight", "norm.weight", "norm.bias"]
    assert post == {*linear, *(f"embeddings.{name}" for name in embeddings)}
    assert pre == {*post, "final_norm.weight", "final_norm.bias"}


def test_initial_weights_are_as_published_and_a_function_of_seed_and_name() -> None:
    config = TransformerConfig(layers=2, hidden=64, heads=2)
    one, two, other = (Transformer(config, 1000) for _ in range(3))
    state = torch.random.get_rng_state()
    initialise(one, seed=1)
    initialise(two, seed=1)
    initialise(other, seed=2)
    assert torch.equal(torch.random.get_rng_state(), state)  # no global generator was touched
    for (name, a), (_, b), (_, c) in zip(*(m.named_parameters() for m in (one, two, other)), strict=True):
        assert torch.equal(a, b), name
        if "norm" in name:
            assert torch.all(a == (1.0 if name.endswith("weight") else 0.0)), name
        elif name.endswith("bias"):
            assert not a.any(), name
        else:
            assert not torch.equal(a, c), name
            assert a.abs().max() <= 0.04
    words = one.embeddings.words.weight
    assert abs(float(words.detach().std()) - 0.02 * 0.8796) < 2e-4  # σ of a standard normal cut at ±2 is 0.8796
    deeper = Transformer(msgspec.structs.replace(config, layers=3), 1000)
    initialise(deeper, seed=1)
    assert torch.equal(deeper.embeddings.words.weight, words)


def test_dropout_drops_the_stated_share_and_keeps_the_mean() -> None:
    layer = Dropout(0.1).train()
    torch.manual_seed(4)
    out = layer(torch.ones(1_000_001))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.9], abs=1e-4)
    assert abs(float((out == 0).double().mean()) - 0.1) < 0.0015
    assert abs(float(out.double().mean()) - 1.0) < 0.0015
    torch.manual_seed(4)
    assert torch.equal(layer(torch.ones(1_000_001)), out)
    x = torch.ones(7, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(layer.eval()(out), out)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hidden": 100, "heads": 12}, "set model.heads = 10"),
        ({"layers": 0}, "model.layers = 0"),
        ({"dropout": 1.0}, "model.dropout = 1.0"),
        ({"attention_dropout": -0.1}, "model.attention_dropout"),
        ({"segments": -1}, "model.segments"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_the_way_out(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        TransformerConfig(**wrong)
    with pytest.raises(RecipeError, match=says):  # the same from a file: msgspec lets our own errors through
        msgspec.convert(wrong, TransformerConfig)


def test_a_sequence_longer_than_the_positions_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="33 tokens is longer than the model's 32 positions"):
        vectors(encoder(), sentences([33]))


def test_arrays_go_to_the_device_as_they_are() -> None:
    batch = TokenBatch.of([[1, 2], [3]])
    batch.ids.flags.writeable = False  # as shards are
    moved = on_device(batch, "cpu")
    assert isinstance(moved.ids, torch.Tensor)
    assert moved.ids.dtype == torch.int64
    assert np.array_equal(moved.ids.numpy(), batch.ids)
    assert moved.lengths.tolist() == [2, 1]
