"""Self-attention over the flat batch (chapter eq. 11.1 to 11.6; Vaswani et al. 2017).

    Q = X W^Q   K = X W^K   V = X W^V                     one product: W^Q, W^K, W^V stacked in `qkv`
    SelfAttention(Q, K, V) = softmax(Q K^T / √d_k) V      over the tokens of one sequence, in H heads

No token ever attends to another sequence, and nothing is padded. Two things are separate:

    layout     where the tokens of a sequence are in the batch, which decides the computation (`layout.py`)
    mask       which of them attend to each other: all, those in a window, those before (`attention_mask.py`)

N tokens, H heads, K size of a head, D = H·K hidden size; B sequences.
"""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.attention.attention_mask import FULL, AttentionMask
from larvatus.models.nn.attention.fused import attend_flat, attend_fused, supports_fused_attention
from larvatus.models.nn.attention.grouped import attend_from, attend_grouped, grouped_weights
from larvatus.models.nn.attention.layout import FlatLayout, GroupedLayout, TokenLayout
from larvatus.models.nn.linear import Int8Linear, LoRALinear, full_weight
from larvatus.models.nn.positions import rotate


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
