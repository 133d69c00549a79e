"""Local attention against a loop that looks at one pair of tokens at a time, on every path through the kernels."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import larvatus.models.nn.attention.attention as attention_module
import larvatus.models.nn.attention.fused as room
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.rng import stream
from larvatus.models.nn import Transformer, TransformerConfig, initialise, on_device
from larvatus.models.nn.attention.attention import attend_grouped, self_attention
from larvatus.models.nn.attention.fused import attend_flat
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout, GroupedLayout, _wide_band, band

LENGTHS = [9, 3, 1, 12, 4, 9]
WINDOW = 2
MODERN = TransformerConfig(
    layers=4,
    hidden=16,
    heads=2,
    norm="pre",
    first_norm=False,
    positions="rotary",
    rotary_base=1000.0,
    gated=True,
    biases=False,
    local_attention=4,
    global_every=3,
    segments=0,
    max_positions=32,
    dropout=0.0,
    attention_dropout=0.0,
)


def normal(*shape: int, item: int = 0) -> Tensor:
    return torch.from_numpy(stream(7, "test local", 0, item).normal(size=shape))


def local_loop(qkv_N3HK: Tensor, lengths: list[int], window: int) -> Tensor:
    """softmax over the tokens j of the same sequence with |i − j| ≤ window, and over no others."""
    out = torch.empty_like(qkv_N3HK[:, 0])
    start = 0
    for length in lengths:
        for i in range(length):
            near = [j for j in range(length) if abs(i - j) <= window]
            for head in range(qkv_N3HK.shape[2]):
                q = qkv_N3HK[start + i, 0, head]
                scores = [float(q @ qkv_N3HK[start + j, 1, head]) / math.sqrt(len(q)) for j in near]
                total = math.fsum(math.exp(score) for score in scores)
                values = [math.exp(s) / total * qkv_N3HK[start + j, 2, head] for s, j in zip(scores, near, strict=True)]
                out[start + i, head] = torch.stack(values).sum(0)
        start += length
    return out


def near_mask(lengths: list[int], window: int) -> Tensor:
    """[N, N] over the flat batch."""
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    place = torch.arange(len(owner))
    return (owner[:, None] == owner) & ((place[:, None] - place).abs() <= window)


@pytest.mark.parametrize("window", [1, WINDOW, 8, 50])
def test_groups_of_one_length_see_the_window_and_nothing_else(window: int) -> None:
    qkv = normal(sum(LENGTHS), 3, 2, 4)
    layout = GroupedLayout.of(torch.tensor(LENGTHS))
    fast = layout.restore(attend_grouped(layout.arrange(qkv), layout, AttentionMask(window=window)))
    assert_close(fast, local_loop(qkv, LENGTHS, window), rtol=1e-10, atol=1e-12)


def test_the_band_is_inclusive_on_both_sides_and_none_where_all_is_seen() -> None:
    cpu = torch.device("cpu")
    assert band(5, 0, cpu) is None
    assert band(3, 2, cpu) is None
    assert band(4, 2, cpu).tolist() == [[abs(i - j) <= 2 for j in range(4)] for i in range(4)]


def test_a_band_made_in_an_evaluation_serves_training() -> None:
    _wide_band.cache_clear()
    qkv = normal(9, 3, 1, 4).requires_grad_()
    layout, mask = GroupedLayout.of(torch.tensor([9])), AttentionMask(window=WINDOW)
    with torch.inference_mode():
        attend_grouped(qkv.detach(), layout, mask)
    attend_grouped(qkv, layout, mask).sum().backward()
    assert qkv.grad.abs().sum() > 0
    assert torch.autograd.gradcheck(lambda x: attend_grouped(x, layout, mask), (qkv,))


def test_dropout_keeps_to_the_window() -> None:
    """Values are one-hot, so an output shows the weights: the dropped share is right, and none lies outside."""
    length = 64
    q = torch.zeros(1, 1, length, length)
    seen = band(length, 3, torch.device("cpu"))
    torch.manual_seed(2)
    weights = torch.stack(
        [self_attention(q, q, torch.eye(length)[None, None], dropout=0.25, seen_LL=seen)[0, 0] for _ in range(40)]
    )
    assert not weights[:, ~seen].any()
    assert abs(float((weights[:, seen] == 0).double().mean()) - 0.25) < 0.02
    plain = self_attention(q, q, torch.eye(length)[None, None], seen_LL=seen)[0, 0]
    assert_close(weights.mean(0), plain, rtol=0.0, atol=0.15)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_the_packed_kernel_is_told_the_window(monkeypatch: pytest.MonkeyPatch, dropout: float) -> None:
    """No GPU here: the names are checked against the operator, the result by computing it from the arguments."""
    given: dict[str, Any] = {}

    def flash(q: Tensor, k: Tensor, v: Tensor, *others: Any, **sides: Any) -> tuple[Tensor, None]:
        given.update(sides, dropout=others[4])
        assert sides["window_size_left"] == sides["window_size_right"]
        heads = (x.transpose(0, 1) for x in (q, k, v))
        mask = near_mask(LENGTHS, sides["window_size_left"])
        return F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(0, 1), None

    monkeypatch.setattr(room.torch.ops.aten, "_flash_attention_forward", flash)
    qkv = normal(sum(LENGTHS), 3, 2, 4)
    packed = attend_flat(
        qkv, FlatLayout.of(torch.tensor(LENGTHS), limit=16), AttentionMask(window=WINDOW), dropout=dropout
    )
    assert_close(packed, local_loop(qkv, LENGTHS, WINDOW), rtol=1e-10, atol=1e-12)
    assert given.pop("dropout") == dropout
    schema = torch._C._get_schema("aten::_flash_attention_forward", "")
    assert set(given) <= {argument.name for argument in schema.arguments if argument.kwarg_only}


def modern(**changes: Any) -> Transformer:
    model = Transformer(msgspec.structs.replace(MODERN, **changes), 50).double().eval()
    initialise(model, seed=3, std=0.4)
    return model


def vectors(model: Transformer, rows: list[list[int]]) -> list[Tensor]:
    with torch.no_grad():
        return list(model(on_device(TokenBatch.of(rows), "cpu")).split([len(row) for row in rows]))


def rows(lengths: list[int]) -> list[list[int]]:
    return [stream(1, "rows", 0, i).integers(0, 50, size=n).tolist() for i, n in enumerate(lengths)]


def test_the_batch_a_sequence_comes_in_never_changes_its_vectors() -> None:
    model = modern()
    sequences = rows(LENGTHS)
    for row, together in zip(sequences, vectors(model, sequences), strict=True):
        assert_close(together, vectors(model, [row])[0], rtol=0.0, atol=1e-10)


def test_layers_0_3_6_see_everything_and_the_others_their_window() -> None:
    assert [msgspec.structs.replace(MODERN, layers=8).window(i) for i in range(8)] == [0, 2, 2, 0, 2, 2, 0, 2]
    row = rows([20])[0]
    changed = [*row[:-1], (row[-1] + 1) % 50]
    for layers, far in ((1, True), (4, True)):
        states = [vectors(modern(layers=layers), [r])[0] for r in (row, changed)]
        assert bool((states[0][0] != states[1][0]).any()) == far
    # without the global ones, a change travels 2 tokens a layer: layers 1 and 2 alone
    model = modern(layers=3)
    layout, mask = GroupedLayout.of(torch.tensor([20])), AttentionMask(window=WINDOW)
    x = normal(20, 16)
    y = x.clone()
    y[19] += 1
    with torch.no_grad():
        after = [model.blocks[2](model.blocks[1](v, layout, mask), layout, mask) for v in (x, y)]
    assert [bool((after[0][i] != after[1][i]).any()) for i in range(20)] == [i >= 19 - 2 * WINDOW for i in range(20)]


def test_every_parameter_learns_and_no_layer_has_a_bias() -> None:
    model = modern().train()
    model(on_device(TokenBatch.of(rows(LENGTHS)), "cpu")).pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        assert not name.endswith("bias")
        assert parameter.grad.abs().sum() > 0, name
    names = {name for name, _ in model.named_parameters()}
    assert "blocks.0.attention_norm.weight" not in names
    assert {"blocks.1.attention_norm.weight", "final_norm.weight", "embeddings.norm.weight"} <= names
    assert not any("positions" in name or "segments" in name for name in names)
    assert model.blocks[0].feedforward.up.weight.shape == (2 * MODERN.inner, 16)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler, of itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_packed_it_compiles_to_one_graph_whatever_the_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(qkv_N3HK: Tensor, layout: FlatLayout, mask: AttentionMask, *, dropout: float = 0.0) -> Tensor:
        place = torch.arange(qkv_N3HK.shape[0])
        owner = torch.bucketize(place, layout.edges, right=True)
        seen = owner[:, None] == owner
        if mask.window:
            seen = seen & ((place[:, None] - place).abs() <= mask.window)
        q, k, v = qkv_N3HK.permute(1, 2, 0, 3)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(0, 1)

    model = modern(layers=2)  # one that sees everything, and one its window
    expected = [torch.cat(vectors(model, rows(lengths))) for lengths in ([9, 20, 3], [16, 16], [1, 30, 1])]
    monkeypatch.setattr(attention_module, "attend_flat", stand_in)
    monkeypatch.setattr(Transformer, "layout", lambda self, lengths, *, limit: FlatLayout.of(lengths, limit=limit))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, dynamic=False, fullgraph=True)
    for lengths, plain in zip(([9, 20, 3], [16, 16, 0], [1, 30, 1]), expected, strict=True):
        batch = on_device(TokenBatch.of(rows(lengths)), "cpu")
        with torch.no_grad():  # training compiles, too: see objectives/test_compiled.py
            assert_close(compiled(batch, limit=32), plain)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"local_attention": 7, "global_every": 3}, "set model.local_attention = 8"),
        ({"local_attention": -2}, "model.local_attention = -2"),
        ({"local_attention": 128}, "set model.global_every = 3"),
        ({"global_every": 3}, "set model.local_attention = 128"),
        ({"global_every": 0}, "model.global_every = 0 must lie between 1"),
        ({"positions": "rotary", "hidden": 36, "heads": 12}, "set model.hidden = 72"),
        ({"rotary_base": 0.0}, "model.rotary_base = 0.0 must be above 1"),
        ({"first_norm": False}, 'set model.norm = "pre"'),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_way_out(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        TransformerConfig(**wrong)


@pytest.mark.parametrize(("hidden", "inner"), [(128, 384), (256, 704), (768, 2048), (1024, 2752)])
def test_a_gated_layer_has_as_many_weights_as_a_plain_one(hidden: int, inner: int) -> None:
    config = msgspec.structs.replace(MODERN, hidden=hidden)
    assert config.inner == inner
    assert 0 <= 3 * inner / (8 * hidden) - 1 < 0.13  # two matrices in and one out, against one and one
    assert msgspec.structs.replace(config, feedforward=100).inner == 100
