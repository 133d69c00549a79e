"""One transformer block: self-attention, then the feedforward layer, each inside a residual connection with a norm.

    post-norm (BERT, Vaswani et al. 2017)      x ← norm(x + dropout(layer(x)))
    pre-norm  (Xiong et al. 2020)              x ← x + dropout(layer(norm(x)))

The two differ only in the function that joins a layer to its residual stream, so a block is told which one to use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.attention_mask import FULL, AttentionMask
from larvatus.models.nn.attention.layout import GroupedLayout, TokenLayout
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.feedforward import FeedForward

NormOrder = Literal["post", "pre"]
Map = Callable[[Tensor], Tensor]


def post_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    y = dropout(layer(x))
    return norm(_taken(x, rows) + y).to(y.dtype)  # in mixed precision norms give 32 bits: twice as much to move


def pre_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    return _taken(x, rows) + dropout(layer(norm(x)))


def _taken(x: Tensor, rows: Tensor | None) -> Tensor:
    """The residual stream of the rows that the layer gives back."""
    return x if rows is None else x.index_select(0, rows)


RESIDUALS: dict[NormOrder, Callable[[Tensor, Map, Map, Map, Tensor | None], Tensor]] = {
    "post": post_norm,
    "pre": pre_norm,
}


class Block(nn.Module):
    def __init__(
        self,
        *,
        attention: Attention,
        attention_norm: nn.Module,
        feedforward: FeedForward,
        feedforward_norm: nn.Module,
        norm: NormOrder,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = attention_norm
        self.feedforward = feedforward
        self.feedforward_norm = feedforward_norm
        self.dropout = Dropout(dropout)
        self.residual = RESIDUALS[norm]
        self.pre_norm = norm == "pre"
        self.rows_at_once: int | None = None
        """Rows that go through the feedforward layer together, so that its wider space stays in a cache; None: all."""

    def forward(
        self, x_ND: Tensor, layout: TokenLayout, sight: AttentionMask = FULL, rows_N: Tensor | None = None
    ) -> Tensor:
        """With `rows`, token n is row rows[n] of x (its first dimension is then not N)."""
        y_ND = self.residual(
            x_ND, lambda x: self.attention(x, layout, sight, rows_N), self.attention_norm, self.dropout, rows_N
        )
        return self._fed(y_ND)

    def through(self, x_ND: Tensor, attend: Map) -> Tensor:
        """The block with attention computed in another way, from what `self.attention` would read."""
        y_ND = self.residual(x_ND, attend, self.attention_norm, self.dropout, None)
        return self._fed(y_ND)

    def at(self, x_ND: Tensor, layout: TokenLayout, sight: AttentionMask, at_B: Tensor) -> Tensor:
        """The same for one token of each sequence, [B, D]: the others are read, but get no vector of their own.

        Where attention has no short way to that, all are computed. Dropout is drawn for what is computed.
        """
        if not isinstance(layout, GroupedLayout) or not sight.plain or (self.training and self.attention.adapted):
            all_ND: Tensor = self(x_ND, layout, sight)
            return all_ND.index_select(0, at_B)
        y_BD = self.residual(
            x_ND, lambda x: self.attention.at(x, layout, at_B), self.attention_norm, self.dropout, at_B
        )
        return self._fed(y_BD)

    def _fed(self, y_ND: Tensor) -> Tensor:
        """The second half of the block, in which no row sees another."""
        if self.rows_at_once is None:
            return self.residual(y_ND, self.feedforward, self.feedforward_norm, self.dropout, None)
        return torch.cat(
            [
                self.residual(part, self.feedforward, self.feedforward_norm, self.dropout, None)
                for part in y_ND.split(self.rows_at_once)
            ]
        )

    def attention_weights(self, x_ND: Tensor, layout: GroupedLayout, sight: AttentionMask = FULL) -> list[Tensor]:
        """What the heads of this block look at: [H, L, L] for each sequence in the order of the layout."""
        return self.attention.weights(self.attention_norm(x_ND) if self.pre_norm else x_ND, layout, sight)
