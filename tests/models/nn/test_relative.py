"""Relative position buckets against `transformers`, and attention with their bias against a loop, on every path."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.rng import stream
from larvatus.models.nn import Transformer, TransformerConfig, initialise, on_device
from larvatus.models.nn.attention.attention import attend_grouped
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout, GroupedLayout
from larvatus.models.nn.positions import RelativeBias, bucket

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
    from transformers.models.t5.modeling_t5 import T5Attention

LENGTHS = [9, 3, 1, 12, 4, 9]
SMALL = TransformerConfig(
    layers=2, hidden=16, heads=2, max_positions=32, relative_buckets=8, dropout=0.0, attention_dropout=0.0
)


def normal(*shape: int, item: int = 0) -> Tensor:
    return torch.from_numpy(stream(7, "test relative", 0, item).normal(size=shape))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (4, 20), (64, 256), (8, 9)])
def test_buckets_are_those_of_t5(buckets: int, distance: int, bidirectional: bool) -> None:
    offsets = torch.arange(-700, 701)
    theirs = T5Attention._relative_position_bucket(
        offsets, bidirectional=bidirectional, num_buckets=buckets, max_distance=distance
    )
    assert torch.equal(bucket(offsets, buckets=buckets, distance=distance, bidirectional=bidirectional), theirs)


def test_buckets_are_those_of_mpnet() -> None:
    offsets = torch.arange(-700, 701)
    assert torch.equal(bucket(offsets, buckets=32, distance=128), MPNetEncoder.relative_position_bucket(offsets))


def one_bucket(offset: int, buckets: int, distance: int) -> int:
    """As the paper says it, one offset at a time, in float64."""
    half = buckets // 2
    first, far = (half, offset) if offset > 0 else (0, -offset)
    exact = half // 2
    if far < exact:
        return first + far
    wide = exact + int(math.log(far / exact) / math.log(distance / exact) * (half - exact) + 1e-6)
    return first + min(wide, half - 1)


def test_buckets_are_those_of_a_loop() -> None:
    found = bucket(torch.arange(-300, 301), buckets=32, distance=128).tolist()
    assert found == [one_bucket(offset, 32, 128) for offset in range(-300, 301)]


@given(
    buckets=st.integers(2, 40).map(lambda n: 2 * n),
    distance=st.integers(21, 500),
    offsets=st.lists(st.integers(-2000, 2000), min_size=2, max_size=20),
    bidirectional=st.booleans(),
)
def test_a_farther_token_never_has_a_nearer_bucket(
    buckets: int, distance: int, offsets: list[int], bidirectional: bool
) -> None:
    behind = sorted(-abs(offset) for offset in offsets)
    found = bucket(torch.tensor(behind), buckets=buckets, distance=distance + buckets, bidirectional=bidirectional)
    assert found.tolist() == sorted(found.tolist(), reverse=True)
    ahead = bucket(
        torch.tensor(offsets).abs() + 1, buckets=buckets, distance=distance + buckets, bidirectional=bidirectional
    )
    every = torch.cat([found, ahead])
    assert int(every.min()) >= 0
    assert int(every.max()) < buckets
    if bidirectional:
        assert int(ahead.min()) >= buckets // 2 > int(found.max())
    else:
        assert ahead.tolist() == [0] * len(offsets)  # one-sided: what is ahead is not told apart


def biased_loop(qkv_N3HK: Tensor, lengths: list[int], weight: Tensor, *, distance: int, window: int = 0) -> Tensor:
    """softmax of q · k / √K + bias over the tokens of the same sequence, a pair at a time."""
    out = torch.empty_like(qkv_N3HK[:, 0])
    start = 0
    for length in lengths:
        for i in range(length):
            seen = [j for j in range(length) if not window or abs(i - j) <= window]
            for head in range(qkv_N3HK.shape[2]):
                q = qkv_N3HK[start + i, 0, head]
                biases = [float(weight[one_bucket(j - i, len(weight), distance), head]) for j in seen]
                scores = [
                    float(q @ qkv_N3HK[start + j, 1, head]) / math.sqrt(len(q)) + bias
                    for j, bias in zip(seen, biases, strict=True)
                ]
                total = math.fsum(map(math.exp, scores))
                values = [math.exp(s) / total * qkv_N3HK[start + j, 2, head] for s, j in zip(scores, seen, strict=True)]
                out[start + i, head] = torch.stack(values).sum(0)
        start += length
    return out


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("dropout", [0.0, 1e-12])
def test_groups_add_the_bias_of_the_distance(window: int, dropout: float) -> None:
    """Without dropout through torch's kernel, with (so little that it drops nothing) through our own product."""
    relative = RelativeBias(buckets=8, distance=20, heads=2).double()
    qkv = normal(sum(LENGTHS), 3, 2, 4)
    with torch.no_grad():
        relative.weight.copy_(normal(8, 2, item=1))
        bias = relative.table(max(LENGTHS) + 3)  # longer than need be: a shorter sequence has its corner
        layout, mask = GroupedLayout.of(torch.tensor(LENGTHS)), AttentionMask(window=window, bias=bias)
        fast = layout.restore(attend_grouped(layout.arrange(qkv), layout, mask, dropout=dropout))
        slow = biased_loop(qkv, LENGTHS, relative.weight, distance=20, window=window)
    assert_close(fast, slow, rtol=1e-9, atol=1e-10)


def test_the_bias_learns_and_all_layers_share_it() -> None:
    model = Transformer(SMALL, vocabulary=30)
    initialise(model, seed=1)
    assert [name for name in model.state_dict() if "relative" in name] == ["relative.weight"]
    assert model.relative is not None
    assert model.relative.weight.count_nonzero() > 0
    batch = on_device(TokenBatch.of([[2, 7, 8, 3], [2, 9, 3], [2, 3]]), "cpu")
    model(batch)[:, 0].sum().backward()
    gradient = model.relative.weight.grad
    assert gradient is not None
    # distances up to 3 either way: buckets 0, 1, 2 behind and 5, 6 ahead; nothing else may learn
    assert gradient.abs().sum(1).gt(0).nonzero().flatten().tolist() == sorted(
        {one_bucket(offset, 8, 128) for offset in range(-3, 4)}
    )


@pytest.mark.parametrize(("buckets", "kind"), [(0, FlatLayout), (8, GroupedLayout)])
def test_on_cuda_a_bias_makes_groups_where_packing_has_no_place_for_it(
    monkeypatch: pytest.MonkeyPatch, buckets: int, kind: type
) -> None:
    """There is no CUDA here, so lengths that claim to be there; in half precision they would be packed."""
    model = Transformer(msgspec.structs.replace(SMALL, relative_buckets=buckets), vocabulary=30)
    here = torch.tensor([4, 3])
    grouped, packed = GroupedLayout.of(here), FlatLayout.of(here, limit=4)
    monkeypatch.setattr(GroupedLayout, "of", lambda lengths: grouped)
    monkeypatch.setattr(FlatLayout, "of", lambda lengths, *, limit: packed)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    there: Any = SimpleNamespace(device=torch.device("cuda"))
    layout = model.layout(there, limit=4)
    assert type(layout) is kind
    if isinstance(layout, GroupedLayout):
        bias = model.attention_masks(torch.tensor([0, 1, 2, 3, 0, 1, 2]), longest=4)[0].bias
        assert bias is not None
        assert bias.shape == (2, 4, 4)


def test_half_precision_differs_by_the_rounding_of_bfloat16_and_no_more() -> None:
    """Numbers of about 2 with 8 bits are rounded by 0.004 in each layer; a wrong bias would cost ten times that."""
    model = Transformer(SMALL, vocabulary=30).eval()
    initialise(model, seed=1, std=0.3)
    batch = on_device(TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]), "cpu")
    with torch.no_grad():
        exact = model(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_close(model(batch).float(), exact, rtol=0.0, atol=0.02)
        assert model.relative is not None
        for wrong in (torch.zeros_like(model.relative.weight), model.relative.weight.flip(0)):
            model.relative.weight.copy_(wrong)
            assert float((model(batch) - exact).abs().max()) > 0.2


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"relative_buckets": 7}, "must be even"),
        ({"relative_buckets": 2}, "at least 4"),
        ({"relative_buckets": -4}, "model.relative_buckets = -4 must lie between 0"),
        ({"relative_buckets": 32, "relative_distance": 8}, "set it above 8"),
        ({"relative_distance": 64}, "has no effect without buckets"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(RecipeError, match=word):
        TransformerConfig(**fields)
