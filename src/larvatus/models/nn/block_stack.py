"""Blocks over a flat batch, one above the other: what transformers have in common, whichever tokens they let see which.

    class Transformer(BlockStack): ...            # every token sees all of its sequence (`transformer.py`)
    class CausalTransformer(BlockStack): ...      # a token sees those before it (`causal_transformer.py`)

A subclass makes `embeddings`, `blocks` and `final_norm`, and says in `sights` what each layer sees.
N tokens in the flat batch, D hidden size, B sequences.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.attention_mask import AttentionMask
from larvatus.models.nn.attention.layout import FlatLayout, GroupedLayout, TokenLayout
from larvatus.models.nn.block import Block
from larvatus.models.nn.encoder_base import Encoder, ModelConfig


class StackConfig(ModelConfig, Protocol):
    """Settings of an encoder that is a stack of blocks."""

    @property
    def heads(self) -> int:
        """Attention heads; they share the hidden size equally."""


class BlockStack(Encoder):
    config: StackConfig
    embeddings: nn.Module
    """From a batch to [N, D]; its `words` are the word vectors."""
    blocks: nn.ModuleList
    """One for each layer, or one for all."""
    final_norm: nn.Module

    @abstractmethod
    def sights(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        """What each layer sees, the lowest first; `longest` is that of the sequences."""

    @property
    def biased(self) -> bool:
        """Whether a bias is added to the scores of attention, for which the variable-length kernel has no place."""
        return False

    @property
    def word_vectors(self) -> Tensor:
        return cast(nn.Embedding, self.embeddings.words).weight

    @property
    def heads(self) -> int:
        return self.config.heads

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """As every encoder's. A layer below the last is given as the next one reads it, before any final norm."""
        return self._forward(batch, layers=layers, limit=limit)

    def with_heads(self, batch: TokenBatch[Tensor], kept_LH: Tensor) -> Tensor:
        return cast(Tensor, self._forward(batch, kept_LH=kept_LH))

    def _forward(
        self,
        batch: TokenBatch[Tensor],
        *,
        layers: Sequence[int] | None = None,
        limit: int | None = None,
        kept_LH: Tensor | None = None,
    ) -> Tensor | list[Tensor]:
        layout, arranged, sights = self._seen(batch, limit)
        x_ND = self.embeddings(arranged)
        top = self.depth
        wanted = [top] if layers is None else layers
        states = {0: x_ND} if 0 in wanted else {}
        for layer in range(max(wanted, default=0)):
            sight = sights[layer]
            if kept_LH is not None:
                sight = dataclasses.replace(sight, heads=kept_LH[layer])
            x_ND = self.layer(self._block(layer), x_ND, layout, sight)
            if layer + 1 in wanted:
                states[layer + 1] = self.final_norm(x_ND) if layer + 1 == top else x_ND
        if layers is None:
            return self._given(layout.restore(states[top]))
        return [self._given(layout.restore(states[layer])) for layer in layers]

    def _given(self, x_ND: Tensor) -> Tensor:
        """In the precision of the weights, also where blocks computed in less."""
        return x_ND.to(self.word_vectors.dtype)

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """As every encoder's, for one token of each sequence.

        Nothing of the last layer is computed that they do not need, which is most of it. Made for sequences that are
        nearly alike, such as masked copies of a text: tokens that are the same at the same position, U of N, are
        embedded and projected to the first layer's queries, keys and values once.
        """
        below = self.config.layers - 1
        layout, arranged, sights = self._seen(batch, limit)
        if below and not self.training:  # dropout would not be the same for equal tokens
            distinct, rows_N = _distinct(arranged)
            x_ND = self._block(0)(self.embeddings(distinct), layout, sights[0], rows_N)
        else:
            x_ND = self.embeddings(arranged)
            x_ND = self._block(0)(x_ND, layout, sights[0]) if below else x_ND
        for layer in range(1, below):
            x_ND = self._block(layer)(x_ND, layout, sights[layer])
        order = None  # sequences in the layout's order, and places there
        if isinstance(layout, GroupedLayout) and layout.inverse is not None:
            places_B, order = layout.inverse[places_B].sort()
        last = self._block(below).at(x_ND, layout, sights[below], places_B)
        z_BD = self._given(self.final_norm(last))
        return z_BD if order is None else torch.empty_like(z_BD).index_copy_(0, order, z_BD)

    def _block(self, layer: int) -> Block:
        return cast(Block, self.blocks[layer % len(self.blocks)])

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """A path of its own, beside `forward`: no fused kernel gives the weights. One layer is held at a time."""
        longest = _longest(batch.lengths, None)
        layout = self.layout(batch.lengths, limit=longest)
        grouped = GroupedLayout.of(batch.lengths) if isinstance(layout, FlatLayout) else layout
        arranged = _arranged(batch, grouped)
        sights = self.sights(arranged.positions, longest=longest)
        order = torch.argsort(batch.lengths, stable=True).tolist()
        x_ND = self.embeddings(arranged)
        for layer in range(self.config.layers):
            block, sight = self._block(layer), sights[layer]
            by_sequence = dict(zip(order, block.attention_weights(x_ND, grouped, sight), strict=True))
            yield [by_sequence[number] for number in range(len(order))]
            x_ND = block(x_ND, grouped, sight)

    @torch.no_grad()
    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        layers, size = self.config.layers, self.config.hidden // self.config.heads
        if len(self.blocks) < layers:
            for head in {head for _, head in heads}:
                if {layer for layer, other in heads if other == head} != set(range(1, layers + 1)):
                    raise UsageError(
                        f"the layers of this model share their weights, so head {head} goes from all of them or none: "
                        f"name it in layers 1 to {layers}"
                    )
        for layer, head in heads:
            self._block(layer - 1).attention.out.weight[:, (head - 1) * size : head * size] = 0

    def parts(self) -> list[tuple[int, nn.Module]]:
        count = len(self.blocks)
        blocks = [(count - 1 - number, block) for number, block in enumerate(self.blocks)]
        return [(count, self.embeddings), *blocks, (0, self.final_norm)]

    def flops(self, length: int) -> int:
        weights = sum(p.numel() for p in self.blocks.parameters())
        blocks = weights * self.depth // len(self.blocks)  # shared weights are used in every layer
        return 6 * blocks + 12 * self.width * self.seen(length)

    def seen(self, length: int) -> int:
        """Tokens that one of a sequence of this length sees, over all layers."""
        return self.depth * length

    def _seen(
        self, batch: TokenBatch[Tensor], limit: int | None
    ) -> tuple[TokenLayout, TokenBatch[Tensor], list[AttentionMask]]:
        """Where the tokens lie, what the embeddings read in that order, and what each layer sees."""
        longest = _longest(batch.lengths, limit)
        layout = self.layout(batch.lengths, limit=longest)
        arranged = _arranged(batch, layout)
        return layout, arranged, self.sights(arranged.positions, longest=longest)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> TokenLayout:
        """How these sequences lie on this device, in the precision now in force."""
        device, longest = lengths.device.type, _longest(lengths, limit)
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.word_vectors.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        if flash and not self.biased:
            return FlatLayout.of(lengths, limit=longest)
        grouped: GroupedLayout = GroupedLayout.of(lengths)
        return grouped


def _longest(lengths: Tensor, limit: int | None) -> int:
    """`limit` where it is promised; else the lengths are read, for which CUDA has to wait."""
    return limit if limit is not None else int(lengths.max()) if len(lengths) else 0


def _arranged(batch: TokenBatch[Tensor], layout: TokenLayout) -> TokenBatch[Tensor]:
    """What the embeddings read, in the layout's order."""
    return dataclasses.replace(
        batch,
        ids=layout.arrange(batch.ids),
        positions=layout.arrange(batch.positions),
        segments=layout.arrange(batch.segments),
    )


def _distinct(batch: TokenBatch[Tensor]) -> tuple[TokenBatch[Tensor], Tensor]:
    """What the embeddings read, each kind of token once, and for every token which of them it is: U tokens, [N]."""
    keys_N = torch.stack([batch.ids, batch.positions, batch.segments])
    widths = keys_N.amax(1) + 1
    keys_N = (keys_N[0] * widths[1] + keys_N[1]) * widths[2] + keys_N[2]
    kinds_U, rows_N = keys_N.unique(return_inverse=True)
    some_U = torch.empty_like(kinds_U).scatter_(0, rows_N, torch.arange(len(rows_N), device=rows_N.device))
    chosen = dataclasses.replace(
        batch, ids=batch.ids[some_U], positions=batch.positions[some_U], segments=batch.segments[some_U]
    )
    return chosen, rows_N
