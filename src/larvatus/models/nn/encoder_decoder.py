"""The encoder–decoder (Raffel et al. 2020, *T5*): one stack reads a text, another writes one, a token after the other.

    >>> from larvatus.core.batch import TokenBatch
    >>> model = EncoderDecoderConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[7, 8, 9, 1], [9, 1]]).map(torch.from_numpy)
    >>> memory = Memory(model(batch), batch.lengths)                    # `forward` reads: one vector a token
    >>> model.decode(torch.tensor([0, 5, 0]), torch.tensor([2, 1]), memory).shape      # two tokens, and one
    torch.Size([3, 8])

A token of the decoder sees the tokens of its own sequence up to itself, and all that the encoder has read of that
sequence. Both sides are flat batches, nothing is padded. Positions are known by the distance of two tokens alone
(`relative.py`): the layers of a side share one bias. As an `Encoder` it is its encoding half, so that embed, classify
and tag read it like any other.
N tokens of the decoder, M tokens of the encoder, B sequences, D hidden size, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, cast

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.models.nn.attention.attention_mask import AttentionMask
from larvatus.models.nn.attention.cross_attention import cross_attention_weights, self_groups
from larvatus.models.nn.attention.layout import GroupedLayout
from larvatus.models.nn.decoder_generation import DecoderGenerationState
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.encoder_decoder_layers import (
    DecoderStack,
    EncoderDecoderBlock,
    EncoderDecoderSettings,
    EncoderOutput,
    ScaledEmbedding,
    SharedRelativeBias,
    build_norm,
)

__all__ = ["EncoderDecoder", "EncoderDecoderConfig", "EncoderOutput", "shift_right"]

DECODED = 0.25
"""Tokens that the decoder writes for each that the encoder reads, about: span corruption at 15% in spans of 3."""


class EncoderDecoderConfig(EncoderDecoderSettings, tag_field="type", tag="encoder-decoder"):
    """What a recipe says of an encoder–decoder (`encoder_decoder_settings.py`), and what it builds."""

    def build(self, vocabulary: int) -> EncoderDecoder:
        if self.start >= vocabulary:
            raise RecipeError(
                f"model.start = {self.start} is no id of a vocabulary of {vocabulary}; set model.start = 0"
            )
        return EncoderDecoder(self, vocabulary)

    def narrowed(self, share: float) -> NoReturn:
        raise RecipeError("an encoder-decoder has no generator; leave out replaced-tokens")


class EncoderDecoder(Encoder):
    config: EncoderDecoderConfig
    closes_prompts = True
    """A prompt is a finished text, which the encoder reads (`models/generation/generator.py`)."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.words = ScaledEmbedding(vocabulary, config.hidden, deviation=1.0)
        self.output = None if config.tied else ScaledEmbedding(vocabulary, config.hidden, deviation=config.hidden**-0.5)
        self.blocks = nn.ModuleList(EncoderDecoderBlock(config, cross=False) for _ in range(config.layers))
        self.relative = SharedRelativeBias(config, bidirectional=True)
        self.final_norm = build_norm(config)
        self.decoder = DecoderStack(config)
        self.dropout = Dropout(config.dropout)

    @property
    def word_vectors(self) -> Tensor:
        return self.words.weight if self.output is None else self.output.weight

    @property
    def heads(self) -> int:
        return self.config.heads

    # The encoder

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """As every encoder's: what the encoder has read. A layer below the last is given before the final norm."""
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
        layout: GroupedLayout = GroupedLayout.of(batch.lengths)
        device = batch.ids.device
        itself, top = self_groups(layout, padded=device.type == "cuda", device=device), self.depth
        sight = AttentionMask(bias=self.relative.table(self._longest(batch.lengths, limit)))
        x_MD = self.dropout(self.words(layout.arrange(batch.ids)))
        wanted = [top] if layers is None else layers
        states = {0: x_MD} if 0 in wanted else {}
        for number, block in enumerate(self.blocks[: max(wanted, default=0)], start=1):
            seen = sight if kept_LH is None else dataclasses.replace(sight, heads=kept_LH[number - 1])
            x_MD = self.layer(block, x_MD, itself, seen)
            if number in wanted:
                states[number] = self.dropout(self.final_norm(x_MD)) if number == top else x_MD
        if layers is None:
            return layout.restore(states[top])
        return [layout.restore(states[layer]) for layer in layers]

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Of the encoder's layers. A path of its own, beside `forward`: no fused kernel gives the weights."""
        layout: GroupedLayout = GroupedLayout.of(batch.lengths)
        itself = self_groups(layout)
        sight = AttentionMask(bias=self.relative.table(self._longest(batch.lengths, None)))
        order = torch.argsort(batch.lengths, stable=True).tolist()
        x_MD = self.dropout(self.words(layout.arrange(batch.ids)))
        for block in self.blocks:
            block = cast(EncoderDecoderBlock, block)
            h_MD, layer = block.attention_norm(x_MD), block.attention
            weights = cross_attention_weights(layer.queries(h_MD), layer.keys_and_values(h_MD), itself, sight)
            by_sequence = dict(zip(order, weights, strict=True))
            yield [by_sequence[number] for number in range(len(order))]
            x_MD = block(x_MD, itself, sight)

    @torch.no_grad()
    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        size = self.config.size_of_heads
        for layer, head in heads:
            block = cast(EncoderDecoderBlock, self.blocks[layer - 1])
            block.attention.out.weight[:, (head - 1) * size : head * size] = 0

    # The decoder

    def decode(self, ids_N: Tensor, lengths_B: Tensor, memory: EncoderOutput) -> Tensor:
        """The decoder's states [N, D], from which the word vectors say what comes after each token.

        `ids` are the tokens that it reads, the start token first (`shift_right`).
        """
        states_ND: Tensor = self.decoder(self.words(ids_N), lengths_B, memory)
        return states_ND

    def both_sides(self) -> list[tuple[int, nn.Module]]:
        """As `parts`, of encoder and decoder, each part counted below the last layer of its own side."""
        outputs = [] if self.output is None else [self.output]
        sides: list[tuple[list[nn.Module], nn.ModuleList, list[nn.Module]]] = [
            ([self.words, self.relative], self.blocks, [self.final_norm]),
            ([self.decoder.relative], self.decoder.blocks, [self.decoder.final_norm, *outputs]),
        ]
        return [
            (above, part)
            for below, blocks, last in sides
            for above, part in [
                *((len(blocks), part) for part in below),
                *((len(blocks) - 1 - number, block) for number, block in enumerate(blocks)),
                *((0, part) for part in last),
            ]
        ]

    def continuing(
        self, prompts: TokenBatch[Tensor], *, room: int, head: Callable[[Tensor], Tensor]
    ) -> DecoderGenerationState:
        """The prompts read, the decoder at its start token (`models/generation/generator.py`)."""
        memory = EncoderOutput(cast(Tensor, self(prompts)), prompts.lengths)
        return DecoderGenerationState(self.decoder, self.words, memory, room=room, head=head)

    def predicting(
        self,
        prompts: TokenBatch[Tensor],
        continuations: TokenBatch[Tensor],
        *,
        limit: int | None = None,
    ) -> Tensor:
        """The state [N, D] from which each token of the continuations is predicted, all in one pass."""
        memory = EncoderOutput(cast(Tensor, self(prompts, limit=limit)), prompts.lengths)
        inputs_N = shift_right(continuations.ids, continuations.lengths, self.config.start)
        return self.decode(inputs_N, continuations.lengths, memory)

    def room_after(self, length: int) -> int:
        """Tokens that the decoder may write, whatever was read; none where the prompt is too long to be read."""
        reach = self.config.max_positions
        return reach if length <= reach else reach - length

    # What is asked of every encoder

    def parts(self) -> list[tuple[int, nn.Module]]:
        """The encoder's: heads of tasks read nothing else, so the decoder stays as it was when they learn."""
        count = len(self.blocks)
        blocks = [(count - 1 - number, block) for number, block in enumerate(self.blocks)]
        return [(count, self.words), (count, self.relative), *blocks, (0, self.final_norm)]

    def flops(self, length: int) -> int:
        """Of both sides, where the decoder writes `DECODED` tokens for each that is read."""
        config = self.config
        encoder, decoder = (
            sum(p.numel() for p in blocks.parameters()) for blocks in (self.blocks, self.decoder.blocks)
        )
        inner = config.heads * config.size_of_heads
        written = round(DECODED * length)
        looks = config.layers * length + DECODED * config.decoder_blocks * (written + length)
        return round(6 * (encoder + DECODED * decoder) + 12 * inner * looks)

    def _longest(self, lengths: Tensor, limit: int | None) -> int:
        """Of a batch; `limit` where it is promised, else the lengths are read."""
        longest = limit if limit is not None else int(lengths.max()) if len(lengths) else 0
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        return longest


def shift_right(ids_N: Tensor, lengths_B: Tensor, start: int) -> Tensor:
    """What the decoder reads to predict these tokens: the start token, then all but the last of each sequence.

    >>> started(torch.tensor([5, 6, 1, 7, 1]), torch.tensor([3, 2]), 0).tolist()
    [0, 5, 6, 0, 7]
    """
    firsts_B = lengths_B.cumsum(0) - lengths_B
    firsts_N = firsts_B.repeat_interleave(lengths_B, output_size=len(ids_N))
    before_N = ids_N.roll(1).clamp(min=0)  # targets that nobody counts are negative
    places_N = torch.arange(len(ids_N), device=ids_N.device)
    return torch.where(places_N == firsts_N, start, before_N)
