"""Transformer blocks, and a stack of them over a flat batch: what transformers have in common, whatever their mask.

A block is self-attention, then the feedforward layer, each inside a residual connection with a norm:

    post-norm (BERT, Vaswani et al. 2017)      x ← norm(x + dropout(layer(x)))
    pre-norm  (Xiong et al. 2020)              x ← x + dropout(layer(norm(x)))

The two differ only in the function that joins a layer to its residual stream, which is a setting of the block.

    class Transformer(BlockStack): ...            # every token attends to all of its sequence (`transformer.py`)
    class CausalTransformer(BlockStack): ...      # a token attends to those before it (`causal_transformer.py`)

A subclass builds `embeddings`, `blocks` and `final_norm`, and returns the mask of each layer in `attention_masks`. N
tokens in the flat batch, D hidden size, B sequences.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.attention_mask import FULL, AttentionMask
from larvatus.models.nn.attention.layout import FlatLayout, GroupedLayout, TokenLayout
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionEncoder, by_sequence
from larvatus.models.nn.feedforward import FeedForward

NormOrder = Literal["post", "pre"]
Map = Callable[[Tensor], Tensor]


def post_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    y = dropout(layer(x))
    return norm(_taken(x, rows) + y).to(y.dtype)  # in mixed precision norms give 32 bits: twice as much to move


def pre_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    return _taken(x, rows) + dropout(layer(norm(x)))


def _taken(x: Tensor, rows: Tensor | None) -> Tensor:
    """The residual stream of the rows that the layer returns."""
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
        """Rows per pass through the feedforward layer, so that its wider space stays in a cache; None: all."""

    def forward(
        self, x_ND: Tensor, layout: TokenLayout, mask: AttentionMask = FULL, rows_N: Tensor | None = None
    ) -> Tensor:
        """With `rows`, token n is row rows[n] of x (its first dimension is then not N)."""
        y_ND = self.residual(
            x_ND, lambda x: self.attention(x, layout, mask, rows_N), self.attention_norm, self.dropout, rows_N
        )
        return self._fed(y_ND)

    def through(self, x_ND: Tensor, attend: Map) -> Tensor:
        """The block with attention computed by `attend`, from the input of `self.attention`."""
        y_ND = self.residual(x_ND, attend, self.attention_norm, self.dropout, None)
        return self._fed(y_ND)

    def at(self, x_ND: Tensor, layout: TokenLayout, mask: AttentionMask, at_B: Tensor) -> Tensor:
        """The same for one token of each sequence, [B, D]: the others are read, but get no vector of their own.

        If attention has no shortcut for that, all are computed. Dropout is sampled for what is computed.
        """
        if not isinstance(layout, GroupedLayout) or not mask.plain or (self.training and self.attention.adapted):
            all_ND: Tensor = self(x_ND, layout, mask)
            return all_ND.index_select(0, at_B)
        y_BD = self.residual(
            x_ND, lambda x: self.attention.at(x, layout, at_B), self.attention_norm, self.dropout, at_B
        )
        return self._fed(y_BD)

    def _fed(self, y_ND: Tensor) -> Tensor:
        """The second half of the block, in which rows are independent."""
        if self.rows_at_once is None:
            return self.residual(y_ND, self.feedforward, self.feedforward_norm, self.dropout, None)
        return torch.cat(
            [
                self.residual(part, self.feedforward, self.feedforward_norm, self.dropout, None)
                for part in y_ND.split(self.rows_at_once)
            ]
        )

    def attention_weights(self, x_ND: Tensor, layout: GroupedLayout, mask: AttentionMask = FULL) -> list[Tensor]:
        """The attention weights of this block: [H, L, L] for each sequence in the order of the layout."""
        return self.attention.weights(self.attention_norm(x_ND) if self.pre_norm else x_ND, layout, mask)


class BlockStack(AttentionEncoder):
    embeddings: nn.Module
    """From a batch to [N, D]; its `words` are the word vectors."""
    final_norm: nn.Module

    @abstractmethod
    def attention_masks(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        """The attention mask of each layer, lowest first; `longest` is the length of the longest sequence."""

    @property
    def biased(self) -> bool:
        """Whether a bias is added to the attention scores, which the variable-length kernel does not support."""
        return False

    @property
    def word_vectors(self) -> Tensor:
        return cast(nn.Embedding, self.embeddings.words).weight

    def read(
        self, batch: TokenBatch[Tensor], layers: Sequence[int], limit: int | None, kept_LH: Tensor | None
    ) -> dict[int, Tensor]:
        layout, arranged, masks = self._arrange(batch, limit)
        if kept_LH is not None:
            masks = [dataclasses.replace(mask, heads=kept_H) for mask, kept_H in zip(masks, kept_LH, strict=True)]
        states = self.run_blocks(self.embeddings(arranged), layers, [(layout, mask) for mask in masks])
        if self.depth in states:
            states[self.depth] = self.final_norm(states[self.depth])
        return {layer: self._given(layout.restore(x_ND)) for layer, x_ND in states.items()}

    def _given(self, x_ND: Tensor) -> Tensor:
        """Cast to the type of the weights, also if blocks computed in less."""
        return x_ND.to(self.word_vectors.dtype)

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """As in `Encoder`, for one token of each sequence.

        Only what these need is computed in the last layer. Made for sequences that are nearly equal, such as masked
        copies of a text: tokens that are equal at the same position, U of N, are embedded and projected to the first
        layer's queries, keys and values once.
        """
        below = self.config.layers - 1
        layout, arranged, masks = self._arrange(batch, limit)
        if below and not self.training:  # dropout would differ between equal tokens
            distinct, rows_N = _distinct(arranged)
            x_ND = self.block(0)(self.embeddings(distinct), layout, masks[0], rows_N)
        else:
            x_ND = self.embeddings(arranged)
            x_ND = self.block(0)(x_ND, layout, masks[0]) if below else x_ND
        for layer in range(1, below):
            x_ND = self.block(layer)(x_ND, layout, masks[layer])
        order = None  # sequences in the layout's order, and positions there
        if isinstance(layout, GroupedLayout) and layout.inverse is not None:
            places_B, order = layout.inverse[places_B].sort()
        last = self.block(below).at(x_ND, layout, masks[below], places_B)
        z_BD = self._given(self.final_norm(last))
        return z_BD if order is None else torch.empty_like(z_BD).index_copy_(0, order, z_BD)

    def block(self, layer: int) -> Block:
        return cast(Block, super().block(layer))

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Computed apart from `forward`: no fused kernel gives the weights. One layer is held at a time."""
        longest = self.longest(batch.lengths, None)
        grouped: GroupedLayout = GroupedLayout.of(batch.lengths)
        arranged = _arranged(batch, grouped)
        x_ND = self.embeddings(arranged)
        for layer, mask in enumerate(self.attention_masks(arranged.positions, longest=longest)):
            block = self.block(layer)
            yield by_sequence(block.attention_weights(x_ND, grouped, mask), batch.lengths)
            x_ND = block(x_ND, grouped, mask)

    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        layers = self.config.layers
        if len(self.blocks) < layers:
            for head in {head for _, head in heads}:
                if {layer for layer, other in heads if other == head} != set(range(1, layers + 1)):
                    raise UsageError(
                        f"the layers of this model share their weights, so head {head} can only be masked in all of "
                        f"them: name it in layers 1 to {layers}"
                    )
        super().zero_heads(heads)

    def parts(self) -> list[tuple[int, nn.Module]]:
        return [(len(self.blocks), self.embeddings), *self.block_parts(), (0, self.final_norm)]

    def flops(self, length: int) -> int:
        weights = sum(p.numel() for p in self.blocks.parameters())
        blocks = weights * self.depth // len(self.blocks)  # shared weights are used in every layer
        return 6 * blocks + 12 * self.width * self.seen(length)

    def seen(self, length: int) -> int:
        """Tokens that one token of a sequence of this length attends to, over all layers."""
        return self.depth * length

    def _arrange(
        self, batch: TokenBatch[Tensor], limit: int | None
    ) -> tuple[TokenLayout, TokenBatch[Tensor], list[AttentionMask]]:
        """The layout, the batch in its order, and the attention mask of each layer."""
        longest = self.longest(batch.lengths, limit)
        layout = self.layout(batch.lengths, limit=longest)
        arranged = _arranged(batch, layout)
        return layout, arranged, self.attention_masks(arranged.positions, longest=longest)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> TokenLayout:
        """The layout of these sequences on this device, in the precision in force."""
        device, longest = lengths.device.type, self.longest(lengths, limit)
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.word_vectors.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        if flash and not self.biased:
            return FlatLayout.of(lengths, limit=longest)
        grouped: GroupedLayout = GroupedLayout.of(lengths)
        return grouped


def _arranged(batch: TokenBatch[Tensor], layout: TokenLayout) -> TokenBatch[Tensor]:
    """The input of the embeddings, in the layout's order."""
    return dataclasses.replace(
        batch,
        ids=layout.arrange(batch.ids),
        positions=layout.arrange(batch.positions),
        segments=layout.arrange(batch.segments),
    )


def _distinct(batch: TokenBatch[Tensor]) -> tuple[TokenBatch[Tensor], Tensor]:
    """The input of the embeddings with each kind of token once, and the kind of every token: U tokens, [N]."""
    keys_N = torch.stack([batch.ids, batch.positions, batch.segments])
    widths = keys_N.amax(1) + 1
    keys_N = (keys_N[0] * widths[1] + keys_N[1]) * widths[2] + keys_N[2]
    kinds_U, rows_N = keys_N.unique(return_inverse=True)
    some_U = torch.empty_like(kinds_U).scatter_(0, rows_N, torch.arange(len(rows_N), device=rows_N.device))
    chosen = dataclasses.replace(
        batch, ids=batch.ids[some_U], positions=batch.positions[some_U], segments=batch.segments[some_U]
    )
    return chosen, rows_N
