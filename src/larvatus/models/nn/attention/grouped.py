"""Attention over sequences of one length, and over a batch whose tokens are sorted by length (`GroupedLayout`).

    SelfAttention(Q, K, V) = softmax(Q K^T / √d_k) V                        (chapter eq. 11.3 to 11.6)

Used on every device except CUDA, and on CUDA for what the variable-length kernel does not support: a bias on the
scores. H heads, K size of a head; B sequences of L tokens in a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.models.nn.attention.layout import FULL, AttentionMask, GroupedLayout
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.dropout import keep_scale


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
