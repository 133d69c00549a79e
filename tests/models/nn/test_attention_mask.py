"""Which token sees which: a loop that looks at one pair of tokens at a time, in float64, says what is right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.rng import stream
from larvatus.models.nn.attention.attention import Attention, attend_grouped, attention_weights
from larvatus.models.nn.attention.fused import attend_flat
from larvatus.models.nn.attention.layout import FULL, AttentionMask, FlatLayout, GroupedLayout

LENGTHS = [5, 1, 7, 5]


def normal(*shape: int) -> Tensor:
    return torch.from_numpy(stream(7, "test sight", 0).normal(size=shape))


def loop(qkv_N3HK: Tensor, sees: Any) -> Tensor:
    """softmax over the tokens j of the same sequence that token i sees, and over no others."""
    out = torch.empty_like(qkv_N3HK[:, 0])
    start = 0
    for length in LENGTHS:
        for i in range(length):
            for head in range(qkv_N3HK.shape[2]):
                q = qkv_N3HK[start + i, 0, head]
                keys = [start + j for j in range(length) if sees(i, j)]
                powers = [math.exp(float(q @ qkv_N3HK[j, 1, head]) / math.sqrt(len(q))) for j in keys]
                values = [p / math.fsum(powers) * qkv_N3HK[j, 2, head] for p, j in zip(powers, keys, strict=True)]
                out[start + i, head] = torch.stack(values).sum(0)
        start += length
    return out


MASKS = {
    "all": (FULL, lambda i, j: True),
    "window": (AttentionMask(window=2), lambda i, j: abs(i - j) <= 2),
    "causal": (AttentionMask(causal=True), lambda i, j: j <= i),
    "causal window": (AttentionMask(causal=True, window=2), lambda i, j: i - 2 <= j <= i),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dropout", [0.0, 1e-12], ids=["fused", "written out"])
def test_groups_see_what_the_loop_sees(kind: str, dropout: float) -> None:
    mask, sees = MASKS[kind]
    qkv, layout = normal(sum(LENGTHS), 3, 2, 4), GroupedLayout.of(torch.tensor(LENGTHS))
    fast = layout.restore(attend_grouped(layout.arrange(qkv), layout, mask, dropout=dropout))
    assert_close(fast, loop(qkv, sees), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["causal", "causal window"])
def test_the_packed_kernel_is_told_that_it_is_causal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: the result is computed from the arguments that the operator gets."""
    mask, sees = MASKS[kind]
    schema = [argument.name for argument in torch._C._get_schema("aten::_flash_attention_forward", "").arguments]

    def flash(*given: Any, **sides: Any) -> tuple[Tensor, None]:
        named = dict(zip(schema, given, strict=False)) | sides
        assert named["is_causal"]
        place = torch.arange(len(given[0]))
        owner = torch.bucketize(place, named["cum_seq_q"], right=True)
        back = place[:, None] - place
        left, right = sides.get("window_size_left", len(place)), sides.get("window_size_right", 0)
        mask = (owner[:, None] == owner) & (back <= left) & (-back <= right)
        return F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in given[:3]), attn_mask=mask).transpose(
            0, 1
        ), None

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash)
    qkv = normal(sum(LENGTHS), 3, 2, 4)
    packed = attend_flat(qkv, FlatLayout.of(torch.tensor(LENGTHS), limit=8), mask)
    assert_close(packed, loop(qkv, sees), rtol=1e-9, atol=1e-11)


def test_a_causal_token_is_bit_equal_whatever_comes_after_it() -> None:
    attention = Attention(hidden=8, heads=2, dropout=0.0).double()
    x, layout, mask = normal(7, 8), GroupedLayout.of(torch.tensor([7])), AttentionMask(causal=True)
    changed = x.clone()
    changed[4] += 1
    with torch.no_grad():
        before, after = attention(x, layout, mask), attention(changed, layout, mask)
    assert [bool((before[i] != after[i]).any()) for i in range(7)] == [False] * 4 + [True] * 3
    inputs = x.clone().requires_grad_()
    attention(inputs, layout, mask)[:4].sum().backward()
    assert inputs.grad is not None
    assert not inputs.grad[4:].any()


def test_weights_are_shown_as_they_are_used() -> None:
    q, k = normal(2, 1, 2, 6, 4)
    weights = attention_weights(q, k, seen_LL=AttentionMask(causal=True).seen(6, q.device))
    assert not weights.triu(1).any()
    assert_close(weights.sum(-1), torch.ones(1, 2, 6))


def test_one_token_of_a_causal_sequence_takes_no_short_cut() -> None:
    assert FULL.plain
    assert not any(mask.plain for mask, _ in list(MASKS.values())[1:])
