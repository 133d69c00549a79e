"""Equations 11.1 to 11.6 of the chapter, each against a loop that only knows Python floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from larvatus.core.rng import stream
from larvatus.models.nn.attention.attention import Attention, attend_grouped, self_attention
from larvatus.models.nn.attention.fused import describe_kernel
from larvatus.models.nn.attention.layout import FlatLayout, GroupedLayout
from larvatus.models.nn.initialise import initialise

LENGTHS = [3, 5, 1, 5, 2]
HIDDEN, HEADS = 8, 2

Rows = list[list[float]]


def normal(*shape: int, item: int = 0) -> Tensor:
    return torch.from_numpy(stream(11, "test attention", 0, item).normal(size=shape))


def layer() -> Attention:
    attention = Attention(hidden=HIDDEN, heads=HEADS, dropout=0.0).double().eval()
    initialise(attention, seed=5, std=0.5)
    with torch.no_grad():
        attention.qkv.bias.copy_(normal(3 * HIDDEN, item=1))
    return attention


def times(weight: Rows, x: list[float]) -> list[float]:
    """W x by its definition."""
    return [math.fsum(w * v for w, v in zip(row, x, strict=True)) for row in weight]


def attention_loop(q: Rows, k: Rows, v: Rows, *, scale: float) -> Rows:
    """Equations 11.4, 11.3 and 11.2 for one sequence and one head."""
    out = []
    for q_i in q:
        scores = [math.fsum(a * b for a, b in zip(q_i, k_j, strict=True)) * scale for k_j in k]  # 11.4
        exponentials = [math.exp(score) for score in scores]
        alpha = [e / math.fsum(exponentials) for e in exponentials]  # 11.3
        out.append([math.fsum(a * v_j[c] for a, v_j in zip(alpha, v, strict=True)) for c in range(len(v[0]))])  # 11.2
    return out


def test_eq_11_1_each_token_is_projected_into_query_key_and_value() -> None:
    attention, x_ND = layer(), normal(4, HIDDEN)
    q_k_v = attention.qkv(x_ND).chunk(3, dim=-1)
    for part, projected in enumerate(q_k_v):
        weight = attention.qkv.weight[part * HIDDEN : (part + 1) * HIDDEN].tolist()
        bias = attention.qkv.bias[part * HIDDEN : (part + 1) * HIDDEN].tolist()
        for i, x_i in enumerate(x_ND.tolist()):
            loop = [a + b for a, b in zip(times(weight, x_i), bias, strict=True)]
            assert_close(projected[i].tolist(), loop, rtol=1e-12, atol=1e-12)


def test_eq_11_2_to_11_4_an_output_is_the_sum_of_values_weighted_by_the_softmax_of_dot_products() -> None:
    q, k, v = (normal(6, 4, item=item) for item in range(3))
    # 11.4 has no 1/√d yet: undo the scale of 11.6
    fast = self_attention(q[None, None] * math.sqrt(4), k[None, None], v[None, None])[0, 0]
    loop = attention_loop(q.tolist(), k.tolist(), v.tolist(), scale=1.0)
    assert_close(fast, torch.tensor(loop, dtype=torch.float64), rtol=1e-10, atol=1e-12)


def test_eq_11_5_one_product_gives_the_queries_keys_and_values_of_all_tokens() -> None:
    attention, x_ND = layer(), normal(4, HIDDEN)
    together = attention.qkv(x_ND)
    one_by_one = torch.stack([attention.qkv(x) for x in x_ND])
    assert_close(together, one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4], [1], [2, 0, 3, 0]])
def test_eq_11_6_flat_attention_equals_the_loop_over_sequences_heads_and_tokens(lengths: list[int]) -> None:
    attention = layer()
    x_ND = normal(sum(lengths), HIDDEN)
    layout = GroupedLayout.of(torch.tensor(lengths))
    fast = layout.restore(attention(layout.arrange(x_ND), layout))
    q_k_v = attention.qkv(x_ND).unflatten(-1, (3, HEADS, HIDDEN // HEADS))
    rows, start = [], 0
    for length in lengths:
        inside = q_k_v[start : start + length]
        heads = [
            attention_loop(*(inside[:, part, head].tolist() for part in range(3)), scale=1 / math.sqrt(HIDDEN // HEADS))
            for head in range(HEADS)
        ]
        rows += [[value for head in heads for value in head[i]] for i in range(length)]
        start += length
    y_ND = torch.tensor(rows, dtype=torch.float64)
    assert_close(fast, y_ND @ attention.out.weight.T + attention.out.bias, rtol=1e-10, atol=1e-12)


def test_gradients_of_flat_attention_are_those_of_finite_differences() -> None:
    layout = GroupedLayout.of(torch.tensor([2, 3, 2]))
    qkv = normal(7, 3, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attend_grouped(x, layout), (qkv,))


def test_the_layout_sorts_by_length_and_back() -> None:
    lengths = torch.tensor([3, 1, 2, 1])
    layout = GroupedLayout.of(lengths)
    flat = torch.arange(7)
    assert layout.groups == ((2, 1), (1, 2), (1, 3))
    assert layout.arrange(flat).tolist() == [3, 6, 4, 5, 0, 1, 2]
    assert layout.restore(layout.arrange(flat)).tolist() == flat.tolist()
    assert GroupedLayout.of(torch.tensor([2, 2, 3])).order is None  # came sorted: nothing to move
    packed = FlatLayout.of(lengths, limit=4)
    assert packed.edges.tolist() == [0, 3, 4, 6, 7]
    assert packed.edges.dtype == torch.int32


def test_attention_dropout_keeps_the_expectation_and_drops_the_stated_share() -> None:
    q, k, v = (normal(1, 1, 32, 4, item=item).float() for item in range(3))
    torch.manual_seed(1)
    mean = torch.stack([self_attention(q, k, v, dropout=0.3) for _ in range(3000)]).mean(0)
    assert_close(mean, self_attention(q, k, v), rtol=0.0, atol=0.06)
    ones = torch.ones(1, 1, 200, 4)
    dropped = self_attention(ones, ones, ones, dropout=0.3)[
        0, 0, :, 0
    ]  # a mean of weights 1/200, each dropped or grown
    deviation = math.sqrt(0.3 / 0.7 / 200)
    assert abs(float(dropped.std()) - deviation) < 0.25 * deviation


def test_the_doctor_can_name_the_kernel() -> None:
    assert "flash" in describe_kernel("cuda:0", "bf16")
    assert describe_kernel("cuda", "fp32") == describe_kernel("cpu", "bf16")


def test_packed_attention_calls_the_kernel_with_edges_and_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: the call is checked against the operator's schema, the result by computing it from the arguments."""
    calls: list[tuple[Any, ...]] = []

    def flash(*arguments: Any) -> tuple[Tensor, ...]:
        calls.append(arguments)
        q, k, v, edges = arguments[:4]
        parts = [
            self_attention(*(x[a:b].transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1)
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
        return torch.cat(parts), *[torch.empty(0)] * 4

    import larvatus.models.nn.attention.fused as room

    # the module first: when it is imported, it registers the operator that the next line replaces
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda *arguments: flash(*arguments)[0])
    monkeypatch.setattr(room.torch.ops.aten, "_flash_attention_forward", flash)
    attention = layer()
    attention.dropout = 0.25
    x_ND, lengths = normal(sum(LENGTHS), HIDDEN), torch.tensor(LENGTHS)
    grouped = GroupedLayout.of(lengths)
    expected = grouped.restore(attention(grouped.arrange(x_ND), grouped))
    assert_close(attention(x_ND, FlatLayout.of(lengths, limit=8)), expected)
    assert len(calls[0]) == 7
    attention.train()
    attention(x_ND, FlatLayout.of(lengths, limit=8))
    schema = torch._C._get_schema("aten::_flash_attention_forward", "")
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, calls[1], strict=False))
    assert (given["max_q"], given["max_k"], given["dropout_p"]) == (8, 8, 0.25)
    assert (given["is_causal"], given["return_debug_mask"]) == (False, False)
    assert given["cum_seq_q"] is given["cum_seq_k"]


def test_layers_are_linear_modules_with_the_agreed_names() -> None:
    names = {name for name, _ in Attention(hidden=8, heads=2, dropout=0.1).named_parameters()}
    assert names == {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}
    assert isinstance(layer().qkv, nn.Linear)
    assert np.prod(layer().qkv.weight.shape) == 3 * HIDDEN * HIDDEN
