"""Bidirectional self-attention over the flat batch (chapter eq. 11.1 to 11.6; Vaswani et al. 2017).

    Q = X W^Q   K = X W^K   V = X W^V                     one product: W^Q, W^K, W^V stacked in `qkv`
    SelfAttention(Q, K, V) = softmax(Q K^T / √d_k) V      over the tokens of one sequence, in H heads

No token ever attends to another sequence, and nothing is padded: CUDA's variable-length kernel is told where
sequences begin (`Packed`), other devices take the sequences of one length together (`Grouped`). A layout with a window
makes attention local (Beltagy et al. 2020, *Longformer*): token i sees token j where |i − j| ≤ window. One with a
bias adds it to the scores (`relative.py`), for which the variable-length kernel has no place: it is always `Grouped`.
N tokens, H heads, K size of a head, D = H·K hidden size; B sequences of L tokens in a group.
"""

from __future__ import annotations

import functools
import math
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

from larvatus.nn.dropout import keep_scale
from larvatus.nn.layout import Grouped, Layout, Packed
from larvatus.nn.lora import LoRALinear, full_weight
from larvatus.nn.rotary import rotate


def self_attention(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    *,
    dropout: float = 0.0,
    seen_LL: Tensor | None = None,
    bias_HLL: Tensor | None = None,
) -> Tensor:
    """Equation 11.6 for sequences of one length, `bias` added to the scores.

    `dropout` zeroes attention weights at random, `seen` is a mask.
    """
    mask = seen_LL  # of truth values, or of numbers to add
    if bias_HLL is not None:
        bias_HLL = bias_HLL.to(q_BHLK.dtype)
        mask = bias_HLL if seen_LL is None else bias_HLL.masked_fill(~seen_LL, -math.inf)
    if dropout == 0.0 or q_BHLK.device.type != "cpu":
        return F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, attn_mask=mask, dropout_p=dropout)
    # torch has no fused kernel with dropout on CPU; written out, it can use our cheaper dropout (1.3 × faster)
    scores_BHLL = (q_BHLK * (1 / math.sqrt(q_BHLK.shape[-1]))) @ k_BHLK.transpose(-1, -2)
    if mask is not None:
        scores_BHLL = scores_BHLL + mask if mask.is_floating_point() else scores_BHLL.masked_fill(~mask, -math.inf)
    weights_BHLL = scores_BHLL.softmax(-1)
    return (weights_BHLL * keep_scale(weights_BHLL.shape, dropout, weights_BHLL.dtype)) @ v_BHLK


def attention_weights(
    q_BHLK: Tensor, k_BHLK: Tensor, *, seen_LL: Tensor | None = None, bias_HLL: Tensor | None = None
) -> Tensor:
    """α = softmax(Q K^T / √d_k), the weights by themselves: [B, H, L, L], a row for each query. For looking inside."""
    scores_BHLL = (q_BHLK @ k_BHLK.transpose(-1, -2)).float() / math.sqrt(q_BHLK.shape[-1])
    if bias_HLL is not None:
        scores_BHLL = scores_BHLL + bias_HLL.float()
    if seen_LL is not None:
        scores_BHLL = scores_BHLL.masked_fill(~seen_LL, -math.inf)
    return scores_BHLL.softmax(-1)


def band(length: int, window: int, device: torch.device) -> Tensor | None:
    """Which tokens see which, [L, L]: those at most `window` apart. None where that is all of them."""
    if window == 0 or length <= window + 1:
        return None
    return _wide_band(1 << (length - 1).bit_length(), window, device)[:length, :length]


@functools.lru_cache(maxsize=8)
def _wide_band(length: int, window: int, device: torch.device) -> Tensor:
    """Bands of all shorter lengths are corners of this one, so few are kept."""
    with torch.inference_mode(False):  # made during an evaluation, it must still serve training afterwards
        places_L = torch.arange(length, device=device)
        return (places_L[:, None] - places_L[None, :]).abs() <= window


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend_grouped(qkv_N3HK: Tensor, layout: Grouped, *, dropout: float = 0.0) -> Tensor:
    """Attention inside each sequence, for tokens sorted by length: [N, 3, H, K] → [N, H, K].

    Its shapes differ from batch to batch, so a compiled model steps out of its graph here.
    """
    parts = torch.split(qkv_N3HK, [count * length for count, length in layout.groups])
    out = []
    for part, (count, length) in zip(parts, layout.groups, strict=True):
        q, k, v = part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
        seen_LL = band(length, layout.window, part.device)
        bias_HLL = None if layout.bias is None else layout.bias[:, :length, :length]
        y_BHLK = self_attention(q, k, v, dropout=dropout, seen_LL=seen_LL, bias_HLL=bias_HLL)
        out.append(y_BHLK.transpose(1, 2).flatten(0, 1))
    return torch.cat(out) if out else qkv_N3HK[:, 2]


def kernel_of(device: str, precision: str) -> str:
    """In words, for people: how attention runs on a device in a precision (``bf16``, ``fp32``)."""
    if device.startswith("cuda") and precision in ("bf16", "fp16"):
        return "variable-length flash kernel"
    return "scaled dot products over groups of one length"


def attend_packed(qkv_N3HK: Tensor, layout: Packed, *, dropout: float = 0.0) -> Tensor:
    """The same through the variable-length flash kernel (CUDA, bf16 or fp16)."""
    q, k, v = qkv_N3HK.unbind(1)
    edges, limit, window = layout.edges, layout.limit, layout.window
    if dropout == 0.0 and not window:
        return cast(Tensor, varlen_attn(q, k, v, edges, edges, limit, limit))
    # the public function has no dropout, nor a window in torch 2.10; the operator beneath it has, and autograd knows it
    causal = debug_mask = False
    flash = torch.ops.aten._flash_attention_forward
    sides = {"window_size_left": window, "window_size_right": window} if window else {}
    return cast(Tensor, flash(q, k, v, edges, edges, limit, limit, dropout, causal, debug_mask, **sides)[0])


class Attention(nn.Module):
    stacked: ClassVar[dict[str, int]] = {"qkv.weight": 3}
    """Parameters that hold several matrices, one above the other: for optimizers that treat each by itself."""

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

    def project(self, x_ND: Tensor, layout: Layout, rows_N: Tensor | None = None) -> Tensor:
        """Queries, keys and values, turned where positions are rotary: [N, 3, H, K].

        With `rows`, token n is row rows[n] of x: equal tokens are projected once.
        """
        qkv: Tensor = self.qkv(x_ND)
        if rows_N is not None:
            qkv = qkv.index_select(0, rows_N)
        qkv_N3HK = qkv.unflatten(-1, (3, self.heads, -1))
        return qkv_N3HK if layout.rotation is None else rotate(qkv_N3HK, layout.rotation)

    def weights(self, x_ND: Tensor, layout: Grouped) -> list[Tensor]:
        """The weights of attention, [H, L, L] for each sequence in the order of the layout."""
        qk_N2HK = self.project(x_ND, layout)[:, :2]
        found: list[Tensor] = []
        for part, (count, length) in zip(
            torch.split(qk_N2HK, [count * length for count, length in layout.groups]), layout.groups, strict=True
        ):
            q, k = part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
            bias_HLL = None if layout.bias is None else layout.bias[:, :length, :length]
            seen_LL = band(length, layout.window, part.device)
            found.extend(attention_weights(q, k, seen_LL=seen_LL, bias_HLL=bias_HLL))
        return found

    def at(self, x_ND: Tensor, layout: Grouped, at_B: Tensor) -> Tensor:
        """Attention of one token of each sequence only: its query against all keys of its sequence. → [B, D]

        For layouts without rotation, window and bias, and weights without a dropout of their own (LoRA's).
        """
        dropout = self.dropout if self.training else 0.0
        hidden = x_ND.shape[-1]
        weight, bias = full_weight(self.qkv), self.qkv.bias
        q_BD = F.linear(x_ND.index_select(0, at_B), weight[:hidden], None if bias is None else bias[:hidden])
        kv_N2HK = F.linear(x_ND, weight[hidden:], None if bias is None else bias[hidden:]).unflatten(
            -1, (2, self.heads, -1)
        )
        queries = torch.split(q_BD.unflatten(-1, (self.heads, -1)), [count for count, _ in layout.groups])
        parts = torch.split(kv_N2HK, [count * length for count, length in layout.groups])
        out = []
        for q_BHK, part, (count, length) in zip(queries, parts, layout.groups, strict=True):
            k_BHLK, v_BHLK = part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
            out.append(self_attention(q_BHK[:, :, None], k_BHLK, v_BHLK, dropout=dropout).flatten(1))
        y_BD: Tensor = self.out(torch.cat(out) if out else q_BD)
        return y_BD

    def forward(self, x_ND: Tensor, layout: Layout, rows_N: Tensor | None = None) -> Tensor:
        """`rows` as in `project`."""
        dropout = self.dropout if self.training else 0.0
        qkv_N3HK = self.project(x_ND, layout, rows_N)
        if isinstance(layout, Packed):
            y_NHK = attend_packed(qkv_N3HK, layout, dropout=dropout)
        else:
            y_NHK = attend_grouped(qkv_N3HK, layout, dropout=dropout)
        if layout.heads is not None:
            y_NHK = y_NHK * layout.heads[:, None].to(y_NHK.dtype)
        out_ND: Tensor = self.out(y_NHK.flatten(-2))
        return out_ND
