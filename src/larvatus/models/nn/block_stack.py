"""Transformer blocks, and `BlockStack`, the base class of encoders that stack them over a flat batch.

A block is self-attention, then the feedforward layer, each inside a residual connection with a norm:

    post-norm (BERT, Vaswani et al. 2017)      x ← norm(x + dropout(layer(x)))
    pre-norm  (Xiong et al. 2020)              x ← x + dropout(layer(norm(x)))

The order is a setting of the block (`NormOrder`), which selects the function `post_norm` or `pre_norm`.

    class Transformer(BlockStack): ...            # every token attends to all of its sequence (`transformer.py`)
    class CausalTransformer(BlockStack): ...      # a token attends to itself and earlier ones (`causal_transformer.py`)

A subclass builds `embeddings`, `blocks` and `final_norm`, and its `attention_masks` returns one mask for each layer.

A flat batch has the tokens of all sequences end to end, without padding. Suffixes of names are shapes: N tokens in the
flat batch, B sequences, D hidden size, H heads; L is the number of layers in `kept_LH`, else the length of a sequence.
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
from larvatus.models.nn.attention.layout import FULL, AttentionMask, FlatLayout, GroupedLayout, TokenLayout
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionEncoder, by_sequence
from larvatus.models.nn.feedforward import FeedForward

NormOrder = Literal["post", "pre"]
Map = Callable[[Tensor], Tensor]
"""A function of one tensor, such as a layer, a norm or dropout."""


def post_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    """norm(x + dropout(layer(x))). With `rows`, row i of the layer's output is added to row rows[i] of x."""
    y = dropout(layer(x))
    return norm(_select_rows(x, rows) + y).to(y.dtype)  # under autocast norms return float32: twice the memory traffic


def pre_norm(x: Tensor, layer: Map, norm: Map, dropout: Map, rows: Tensor | None = None) -> Tensor:
    """x + dropout(layer(norm(x))). With `rows`, row i of the layer's output is added to row rows[i] of x."""
    return _select_rows(x, rows) + dropout(layer(norm(x)))


def _select_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """The rows of x to which the layer's output is added; None means all."""
    return x if rows is None else x.index_select(0, rows)


RESIDUALS: dict[NormOrder, Callable[[Tensor, Map, Map, Map, Tensor | None], Tensor]] = {
    "post": post_norm,
    "pre": pre_norm,
}
"""The residual connection of each norm order."""


class Block(nn.Module):
    """One layer of a transformer: self-attention, then the feedforward layer."""

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
        """Rows per pass through the feedforward layer, so that inner activations fit in the CPU cache; None: all."""

    def forward(
        self, x_ND: Tensor, layout: TokenLayout, mask: AttentionMask = FULL, rows_N: Tensor | None = None
    ) -> Tensor:
        """The block's output [N, D] for its input [N, D].

        With `rows_N`, x may have fewer than N rows, and row rows_N[n] is the input of token n. Equal tokens are then
        projected once.
        """
        y_ND = self.residual(
            x_ND, lambda x: self.attention(x, layout, mask, rows_N), self.attention_norm, self.dropout, rows_N
        )
        return self._feed_forward(y_ND)

    def through(self, x_ND: Tensor, attend: Map) -> Tensor:
        """The block's output if `attend` replaces self-attention; its input is what `self.attention` would get."""
        y_ND = self.residual(x_ND, attend, self.attention_norm, self.dropout, None)
        return self._feed_forward(y_ND)

    def at(self, x_ND: Tensor, layout: TokenLayout, mask: AttentionMask, at_B: Tensor) -> Tensor:
        """The block's output [B, D] for one token of each sequence, `at_B`, by its index in the flat batch.

        Other tokens give only keys and values. If attention cannot do this (another layout, a mask that is not plain,
        or LoRA in training), all N outputs are computed and B are selected. Dropout is sampled only for rows that are
        computed.
        """
        if not isinstance(layout, GroupedLayout) or not mask.plain or (self.training and self.attention.adapted):
            all_ND: Tensor = self(x_ND, layout, mask)
            return all_ND.index_select(0, at_B)
        y_BD = self.residual(
            x_ND, lambda x: self.attention.at(x, layout, at_B), self.attention_norm, self.dropout, at_B
        )
        return self._feed_forward(y_BD)

    def _feed_forward(self, y_ND: Tensor) -> Tensor:
        """The feedforward layer with its residual connection; rows are independent, so it may run in parts."""
        if self.rows_at_once is None:
            return self.residual(y_ND, self.feedforward, self.feedforward_norm, self.dropout, None)
        return torch.cat(
            [
                self.residual(part, self.feedforward, self.feedforward_norm, self.dropout, None)
                for part in y_ND.split(self.rows_at_once)
            ]
        )

    def attention_weights(self, x_ND: Tensor, layout: GroupedLayout, mask: AttentionMask = FULL) -> list[Tensor]:
        """Attention weights: [H, L, L] for each sequence of length L, in the order of the layout."""
        return self.attention.weights(self.attention_norm(x_ND) if self.pre_norm else x_ND, layout, mask)


class BlockStack(AttentionEncoder):
    """Embeddings, a stack of blocks, and a final norm."""

    embeddings: nn.Module
    """Maps a `TokenBatch` to [N, D]; its `words` is the `nn.Embedding` of the vocabulary."""
    final_norm: nn.Module
    """Norm after the last block."""

    @abstractmethod
    def attention_masks(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        """The attention mask of each layer, lowest first; `longest` is the length in tokens of the longest sequence."""

    @property
    def biased(self) -> bool:
        """Whether a bias is added to the attention scores; variable-length kernels do not support that."""
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
        return {layer: self._cast(layout.restore(x_ND)) for layer, x_ND in states.items()}

    def _cast(self, x_ND: Tensor) -> Tensor:
        """Cast to the dtype of the weights; under autocast blocks compute in a lower precision."""
        return x_ND.to(self.word_vectors.dtype)

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """The last layer's vectors [B, D] of one token of each sequence; `places_B` are indices in the flat batch.

        The last layer computes only these B tokens. The method is fast for sequences that are nearly equal, such as
        copies of a text with one token masked in each: N tokens have only U distinct (id, position, segment) triples,
        and each triple is embedded and projected to the first layer's queries, keys and values once.
        """
        last_layer = self.config.layers - 1
        layout, arranged, masks = self._arrange(batch, limit)
        if last_layer and not self.training:  # in training, dropout differs between equal tokens
            distinct, rows_N = _distinct(arranged)
            x_ND = self.block(0)(self.embeddings(distinct), layout, masks[0], rows_N)
        else:
            x_ND = self.embeddings(arranged)
            x_ND = self.block(0)(x_ND, layout, masks[0]) if last_layer else x_ND
        for layer in range(1, last_layer):
            x_ND = self.block(layer)(x_ND, layout, masks[layer])
        order = None  # [B] the batch's sequence at each index of the layout, if the layout reorders sequences
        if isinstance(layout, GroupedLayout) and layout.inverse is not None:
            places_B, order = layout.inverse[places_B].sort()
        y_BD = self.block(last_layer).at(x_ND, layout, masks[last_layer], places_B)
        z_BD = self._cast(self.final_norm(y_BD))
        return z_BD if order is None else torch.empty_like(z_BD).index_copy_(0, order, z_BD)

    def block(self, layer: int) -> Block:
        """The block of a layer, counted from 0."""
        return cast(Block, super().block(layer))

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Attention weights: for each layer, lowest first, [H, L, L] of each sequence in the batch's order.

        `forward` cannot return them, since fused kernels do not store them. Only one layer is in memory at a time.
        """
        longest = self.longest(batch.lengths, None)
        grouped: GroupedLayout = GroupedLayout.of(batch.lengths)
        arranged = _reorder(batch, grouped)
        x_ND = self.embeddings(arranged)
        for layer, mask in enumerate(self.attention_masks(arranged.positions, longest=longest)):
            block = self.block(layer)
            yield by_sequence(block.attention_weights(x_ND, grouped, mask), batch.lengths)
            x_ND = block(x_ND, grouped, mask)

    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        """Mask heads, (layer, head) counted from 1, by setting their output weights to zero."""
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
        """Tokens that one token attends to in a sequence of `length` tokens, summed over layers."""
        return self.depth * length

    def _arrange(
        self, batch: TokenBatch[Tensor], limit: int | None
    ) -> tuple[TokenLayout, TokenBatch[Tensor], list[AttentionMask]]:
        """The layout of the batch, the batch in the layout's order, and the attention mask of each layer."""
        longest = self.longest(batch.lengths, limit)
        layout = self.layout(batch.lengths, limit=longest)
        arranged = _reorder(batch, layout)
        return layout, arranged, self.attention_masks(arranged.positions, longest=longest)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> TokenLayout:
        """The layout for sequences of these lengths [B]: flat for variable-length kernels, else grouped.

        Those kernels need CUDA, 16-bit floats (autocast or weights), heads whose size is a multiple of 8 up to 256, and
        attention without a bias. `limit` promises that no sequence is longer.
        """
        device, longest = lengths.device.type, self.longest(lengths, limit)
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.word_vectors.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        if flash and not self.biased:
            return FlatLayout.of(lengths, limit=longest)
        grouped: GroupedLayout = GroupedLayout.of(lengths)
        return grouped


def _reorder(batch: TokenBatch[Tensor], layout: TokenLayout) -> TokenBatch[Tensor]:
    """The batch with ids, positions and segments in the layout's order; embeddings read nothing else."""
    return dataclasses.replace(
        batch,
        ids=layout.arrange(batch.ids),
        positions=layout.arrange(batch.positions),
        segments=layout.arrange(batch.segments),
    )


def _distinct(batch: TokenBatch[Tensor]) -> tuple[TokenBatch[Tensor], Tensor]:
    """The batch with each distinct (id, position, segment) triple once [U], and the index in it of each token [N]."""
    keys_N = torch.stack([batch.ids, batch.positions, batch.segments])
    widths = keys_N.amax(1) + 1
    keys_N = (keys_N[0] * widths[1] + keys_N[1]) * widths[2] + keys_N[2]
    kinds_U, rows_N = keys_N.unique(return_inverse=True)
    some_U = torch.empty_like(kinds_U).scatter_(0, rows_N, torch.arange(len(rows_N), device=rows_N.device))
    chosen = dataclasses.replace(
        batch, ids=batch.ids[some_U], positions=batch.positions[some_U], segments=batch.segments[some_U]
    )
    return chosen, rows_N
