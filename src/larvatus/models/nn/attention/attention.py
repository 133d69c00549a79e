"""Self-attention over the flat batch (chapter eq. 11.1 to 11.6; Vaswani et al. 2017).

    Q = X W^Q   K = X W^K   V = X W^V                     one product: W^Q, W^K, W^V stacked in `qkv`
    SelfAttention(Q, K, V) = softmax(Q K^T / √d_k) V      over the tokens of one sequence, in H heads

No token ever attends to another sequence, and nothing is padded. Two things are separate (`layout.py`):

    layout     where the tokens of a sequence are in the batch, which decides the computation
    mask       which of them attend to each other: all, those in a window, those before

A batch whose tokens are sorted by length (`GroupedLayout`) is computed a block of equal lengths at a time: on every
device except CUDA, and on CUDA for what the variable-length kernel does not support, a bias on the scores.

N tokens, H heads, K size of a head, D = H·K hidden size; B sequences of L tokens in a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.attention.fused import attend_flat, attend_fused, supports_fused_attention
from larvatus.models.nn.attention.layout import FULL, AttentionMask, FlatLayout, GroupedLayout, TokenLayout
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.dropout import keep_scale
from larvatus.models.nn.linear import Int8Linear, LoRALinear, full_weight
from larvatus.models.nn.positions import rotate


def self_attention(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    *,
    dropout: float = 0.0,
    seen_LL: Tensor | None = None,
    bias_HLL: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Equation 11.6 for sequences of one length, with `bias` added to the scores.

    `dropout` zeroes attention weights at random, `seen` is a mask; `scale` defaults to 1 / √d_k.
    """
    mask = seen_LL  # of booleans, or of numbers to add
    if bias_HLL is not None:
        bias_HLL = bias_HLL.to(q_BHLK.dtype)
        mask = bias_HLL if seen_LL is None else bias_HLL.masked_fill(~seen_LL, -math.inf)
    if dropout == 0.0 or q_BHLK.device.type != "cpu":
        return F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, attn_mask=mask, dropout_p=dropout, scale=scale)
    # torch has no fused kernel with dropout on CPU; written out, it can use our cheaper dropout (1.3 × faster)
    factor = 1 / math.sqrt(q_BHLK.shape[-1]) if scale is None else scale
    scores_BHLL = (q_BHLK * factor) @ k_BHLK.transpose(-1, -2)
    if mask is not None:
        scores_BHLL = scores_BHLL + mask if mask.is_floating_point() else scores_BHLL.masked_fill(~mask, -math.inf)
    weights_BHLL = scores_BHLL.softmax(-1)
    return (weights_BHLL * keep_scale(weights_BHLL.shape, dropout, weights_BHLL.dtype)) @ v_BHLK


def attention_weights(
    q_BHLK: Tensor, k_BHLK: Tensor, *, seen_LL: Tensor | None = None, bias_HLL: Tensor | None = None
) -> Tensor:
    """Only the weights, α = softmax(Q K^T / √d_k): [B, H, L, L], a row for each query. For interpretation."""
    scores_BHLL = (q_BHLK @ k_BHLK.transpose(-1, -2)).float() / math.sqrt(q_BHLK.shape[-1])
    if bias_HLL is not None:
        scores_BHLL = scores_BHLL + bias_HLL.float()
    if seen_LL is not None:
        scores_BHLL = scores_BHLL.masked_fill(~seen_LL, -math.inf)
    return scores_BHLL.softmax(-1)


@uncompiled
def attend_grouped(
    qkv_N3HK: Tensor, layout: GroupedLayout, mask: AttentionMask = FULL, *, dropout: float = 0.0
) -> Tensor:
    """Attention inside each sequence, for tokens sorted by length: [N, 3, H, K] → [N, H, K].

    Its shapes vary from batch to batch, so a compiled model breaks its graph here.
    """
    out = []
    for (q, k, v), length in _by_group(qkv_N3HK, layout):
        seen_LL, bias_HLL = mask.seen(length, q.device), mask.bias_of(length)
        y_BHLK = self_attention(q, k, v, dropout=dropout, seen_LL=seen_LL, bias_HLL=bias_HLL)
        out.append(y_BHLK.transpose(1, 2).flatten(0, 1))
    return torch.cat(out) if out else qkv_N3HK[:, 2]


def grouped_weights(qk_N2HK: Tensor, layout: GroupedLayout, mask: AttentionMask = FULL) -> list[Tensor]:
    """The attention weights from queries and keys, [H, L, L] for each sequence in the order of the layout."""
    weights: list[Tensor] = []
    for (q, k), length in _by_group(qk_N2HK, layout):
        seen_LL, bias_HLL = mask.seen(length, q.device), mask.bias_of(length)
        weights.extend(attention_weights(q, k, seen_LL=seen_LL, bias_HLL=bias_HLL))
    return weights


def attend_from(q_BHK: Tensor, kv_N2HK: Tensor, layout: GroupedLayout, *, dropout: float = 0.0) -> Tensor:
    """Attention of one query of each sequence to its whole sequence: [B, H, K] → [B, H·K]."""
    queries = torch.split(q_BHK, [count for count, _ in layout.groups])
    out = []
    for q, ((k_BHLK, v_BHLK), _) in zip(queries, _by_group(kv_N2HK, layout), strict=True):
        out.append(self_attention(q[:, :, None], k_BHLK, v_BHLK, dropout=dropout).flatten(1))
    return torch.cat(out) if out else q_BHK.flatten(1)


def _by_group(x_NCHK: Tensor, layout: GroupedLayout) -> Iterator[tuple[Tensor, int]]:
    """The sequences of each length, [C, B, H, L, K], and that length; C counts queries, keys and values."""
    parts = torch.split(x_NCHK, [count * length for count, length in layout.groups])
    for part, (count, length) in zip(parts, layout.groups, strict=True):
        yield part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4), length


# The layer.


class Attention(nn.Module):
    qkv: nn.Linear | Int8Linear
    stacked: ClassVar[dict[str, int]] = {"qkv.weight": 3}
    """Parameters that stack several matrices, for optimizers that treat each separately."""

    def __init__(self, *, hidden: int, heads: int, dropout: float, biases: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=biases)
        self.out = nn.Linear(hidden, hidden, bias=biases)

    @property
    def adapted(self) -> bool:
        """Whether LoRA was added, which may drop some of its input."""
        return isinstance(self.qkv, LoRALinear)

    def project(self, x_ND: Tensor, mask: AttentionMask = FULL, rows_N: Tensor | None = None) -> Tensor:
        """Queries, keys and values, rotated if positions are rotary: [N, 3, H, K].

        With `rows`, token n is row rows[n] of x: equal tokens are projected once.
        """
        qkv: Tensor = self.qkv(x_ND)
        if rows_N is not None:
            qkv = qkv.index_select(0, rows_N)
        qkv_N3HK = qkv.unflatten(-1, (3, self.heads, -1))
        return qkv_N3HK if mask.rotation is None else rotate(qkv_N3HK, mask.rotation)

    def weights(self, x_ND: Tensor, layout: GroupedLayout, mask: AttentionMask = FULL) -> list[Tensor]:
        """The attention weights, [H, L, L] for each sequence in the order of the layout."""
        return grouped_weights(self.project(x_ND, mask)[:, :2], layout, mask)

    def at(self, x_ND: Tensor, layout: GroupedLayout, at_B: Tensor) -> Tensor:
        """Attention of one token of each sequence only: its query against all keys of its sequence. → [B, D]

        For tokens that all attend to each other (`AttentionMask.plain`), and weights without a dropout of their own
        (LoRA's).
        """
        dropout = self.dropout if self.training else 0.0
        q_BD, kv_ND = self._queries_and_keys(x_ND, at_B)
        kv_N2HK = kv_ND.unflatten(-1, (2, self.heads, -1))
        y_BD: Tensor = self.out(attend_from(q_BD.unflatten(-1, (self.heads, -1)), kv_N2HK, layout, dropout=dropout))
        return y_BD

    def _queries_and_keys(self, x_ND: Tensor, at_B: Tensor) -> tuple[Tensor, Tensor]:
        """Queries of some tokens [B, D], keys and values of all [N, 2D]."""
        hidden = x_ND.shape[-1]
        if isinstance(self.qkv, Int8Linear):  # its rows are packed together
            qkv_ND: Tensor = self.qkv(x_ND)
            return qkv_ND[:, :hidden].index_select(0, at_B), qkv_ND[:, hidden:]
        weight, bias = full_weight(self.qkv), self.qkv.bias
        q_BD = F.linear(x_ND.index_select(0, at_B), weight[:hidden], None if bias is None else bias[:hidden])
        return q_BD, F.linear(x_ND, weight[hidden:], None if bias is None else bias[hidden:])

    def _bias_of_fused(self, x_ND: Tensor, mask: AttentionMask, rows_N: Tensor | None) -> Tensor | None:
        """The bias of queries, keys and values, if our kernels can compute its gradient with that of the scores."""
        changed = mask.rotation is not None or rows_N is not None or type(self.qkv) is not nn.Linear
        if (
            changed
            or not torch.is_grad_enabled()
            or not supports_fused_attention(x_ND.device, x_ND.shape[-1] // self.heads)
        ):
            return None
        bias = cast(Tensor | None, self.qkv.bias)
        return bias if bias is not None and bias.requires_grad else None

    def forward(
        self, x_ND: Tensor, layout: TokenLayout, mask: AttentionMask = FULL, rows_N: Tensor | None = None
    ) -> Tensor:
        """`rows` as in `project`."""
        dropout = self.dropout if self.training else 0.0
        if isinstance(layout, FlatLayout) and (bias := self._bias_of_fused(x_ND, mask, rows_N)) is not None:
            qkv_N3HK = F.linear(x_ND, cast(Tensor, self.qkv.weight), bias.detach()).unflatten(-1, (3, self.heads, -1))
            y_NHK = attend_fused(qkv_N3HK, layout, mask, dropout=dropout, bias=bias)
        elif isinstance(layout, FlatLayout):
            y_NHK = attend_flat(self.project(x_ND, mask, rows_N), layout, mask, dropout=dropout)
        else:
            y_NHK = attend_grouped(self.project(x_ND, mask, rows_N), layout, mask, dropout=dropout)
        out_ND: Tensor = self.out(y_NHK.flatten(-2))
        return out_ND
