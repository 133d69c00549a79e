"""The encoder–decoder (Raffel et al. 2020, *T5*): one stack reads a text, another generates one, token by token.

    >>> from larvatus.core.batch import TokenBatch
    >>> model = EncoderDecoderConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[7, 8, 9, 1], [9, 1]]).map(torch.from_numpy)
    >>> memory = EncoderOutput(model(batch), batch.lengths)             # `forward` encodes: one vector a token
    >>> model.decode(torch.tensor([0, 5, 0]), torch.tensor([2, 1]), memory).shape      # two tokens, and one
    torch.Size([3, 8])

A decoder token attends to the tokens of its own sequence up to itself, and to the whole encoder output of that
sequence. Both sides are flat batches, nothing is padded. Positions are known only by the distance of two tokens
(`positions.py`): the layers of a side share one bias. As an `Encoder` it is its encoding half, so that embed,
classify and tag use it like any other.

`DecoderGenerationState` generates one token per step, with everything cached that stays equal. The prompt is encoded
once, and its keys and values in all decoder layers are computed once. They stay sorted by length, prompts of one length
in a block. The generated tokens are of one length in all sequences, so their keys and values are one block with space
for those to come.

N tokens of the decoder, M tokens of the encoder, B sequences, D hidden size, V vocabulary, H heads, K size of a head, R
generated tokens at most, L tokens of a prompt, P prompts of that length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, cast

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.models.nn.attention.attention import self_attention
from larvatus.models.nn.attention.cross_attention import CrossAttention, cross_attention_weights, self_groups
from larvatus.models.nn.attention.layout import AttentionMask, GroupedLayout
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionEncoder, by_sequence
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
"""Decoder tokens for each encoder token, approximately: span corruption at 15% in spans of 3."""


class EncoderDecoderConfig(EncoderDecoderSettings, tag_field="type", tag="encoder-decoder"):
    """Settings of an encoder–decoder in a recipe, and how it is built."""

    def build(self, vocabulary: int) -> EncoderDecoder:
        if self.start >= vocabulary:
            raise RecipeError(
                f"model.start = {self.start} is not an id of a vocabulary of {vocabulary}; set model.start = 0"
            )
        return EncoderDecoder(self, vocabulary)

    def narrowed(self, share: float) -> NoReturn:
        raise RecipeError("an encoder-decoder has no generator; leave out replaced-tokens")


class EncoderDecoder(AttentionEncoder):
    config: EncoderDecoderConfig
    closes_prompts = True
    """A prompt is a complete text, which the encoder reads (`models/generation/generator.py`)."""

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

    # The encoder

    def read(
        self, batch: TokenBatch[Tensor], layers: Sequence[int], limit: int | None, kept_LH: Tensor | None
    ) -> dict[int, Tensor]:
        """The encoder's states."""
        layout: GroupedLayout = GroupedLayout.of(batch.lengths)
        device = batch.ids.device
        itself, top = self_groups(layout, padded=device.type == "cuda", device=device), self.depth
        mask = AttentionMask(bias=self.relative.table(self.longest(batch.lengths, limit)))
        masks = [mask] * top if kept_LH is None else [dataclasses.replace(mask, heads=kept_H) for kept_H in kept_LH]
        x_MD = self.dropout(self.words(layout.arrange(batch.ids)))
        states = self.run_blocks(x_MD, layers, [(itself, mask) for mask in masks])
        if top in states:
            states[top] = self.dropout(self.final_norm(states[top]))
        return {layer: layout.restore(x_MD) for layer, x_MD in states.items()}

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Weights of the encoder's layers. Computed apart from `forward`: no fused kernel gives the weights."""
        layout: GroupedLayout = GroupedLayout.of(batch.lengths)
        itself = self_groups(layout)
        mask = AttentionMask(bias=self.relative.table(self.longest(batch.lengths, None)))
        x_MD = self.dropout(self.words(layout.arrange(batch.ids)))
        for block in self.blocks:
            block = cast(EncoderDecoderBlock, block)
            h_MD, layer = block.attention_norm(x_MD), block.attention
            weights = cross_attention_weights(layer.queries(h_MD), layer.keys_and_values(h_MD), itself, mask)
            yield by_sequence(weights, batch.lengths)
            x_MD = block(x_MD, itself, mask)

    # The decoder

    def decode(self, ids_N: Tensor, lengths_B: Tensor, memory: EncoderOutput) -> Tensor:
        """The decoder's states [N, D], from which the word vectors predict the token after each.

        `ids` are the tokens that it reads, the start token first (`shift_right`).
        """
        states_ND: Tensor = self.decoder(self.words(ids_N), lengths_B, memory)
        return states_ND

    def both_sides(self) -> list[tuple[int, nn.Module]]:
        """As `parts`, for encoder and decoder, each part counted below the last layer of its own side."""
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

    def generation_state(
        self, prompts: TokenBatch[Tensor], *, max_new: int, head: Callable[[Tensor], Tensor]
    ) -> DecoderGenerationState:
        """Encode the prompts and start the decoder at its start token (`models/generation/generator.py`)."""
        memory = EncoderOutput(cast(Tensor, self(prompts)), prompts.lengths)
        return DecoderGenerationState(self.decoder, self.words, memory, max_new=max_new, head=head)

    def continuation_states(
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

    def max_new_tokens(self, length: int) -> int:
        """Tokens that the decoder may generate, whatever was read; none if the prompt is too long to be read."""
        reach = self.config.max_positions
        return reach if length <= reach else reach - length

    # The interface of every encoder

    def parts(self) -> list[tuple[int, nn.Module]]:
        """The encoder's parts: heads of tasks read nothing else, so fine-tuning leaves the decoder unchanged."""
        count = len(self.blocks)
        return [(count, self.words), (count, self.relative), *self.block_parts(), (0, self.final_norm)]

    def flops(self, length: int) -> int:
        """Operations of both sides, if the decoder generates `DECODED` tokens for each that is read."""
        config = self.config
        encoder, decoder = (
            sum(p.numel() for p in blocks.parameters()) for blocks in (self.blocks, self.decoder.blocks)
        )
        inner = config.heads * config.size_of_heads
        written = round(DECODED * length)
        looks = config.layers * length + DECODED * config.decoder_blocks * (written + length)
        return round(6 * (encoder + DECODED * decoder) + 12 * inner * looks)


def shift_right(ids_N: Tensor, lengths_B: Tensor, start: int) -> Tensor:
    """The decoder's input for predicting these tokens: the start token, then all but the last of each sequence.

    >>> shift_right(torch.tensor([5, 6, 1, 7, 1]), torch.tensor([3, 2]), 0).tolist()
    [0, 5, 6, 0, 7]
    """
    firsts_B = lengths_B.cumsum(0) - lengths_B
    firsts_N = firsts_B.repeat_interleave(lengths_B, output_size=len(ids_N))
    before_N = ids_N.roll(1).clamp(min=0)  # ignored targets are negative
    places_N = torch.arange(len(ids_N), device=ids_N.device)
    return torch.where(places_N == firsts_N, start, before_N)


Head = Callable[[Tensor], Tensor]


class DecoderGenerationState:
    """B sequences that are being generated. The start token is read first, so `logits` are those of the first token.

    state = DecoderGenerationState(decoder, words, memory, max_new=20, head=head)
    state.logits()                         # [B, V] of the first token of each
    state.extend(ids_B)                    # the decoder reads one more token
    """

    def __init__(
        self, decoder: DecoderStack, words: nn.Embedding, memory: EncoderOutput, *, max_new: int, head: Head
    ) -> None:
        """At most `max_new` tokens will be generated; `head` turns states into scores of all words."""
        self._decoder, self._words, self._head = decoder, words, head
        self._blocks = [cast(EncoderDecoderBlock, block) for block in decoder.blocks]
        self._read = _CrossCache(self._blocks, memory)
        count, config, like = len(memory.lengths_B), decoder.config, memory.states_MD
        shape = (2, count, config.heads, max_new + 1, config.size_of_heads)
        self._kept = [like.new_zeros(shape) for _ in self._blocks]  # keys and values of the generated tokens
        self._bias_HRR = decoder.relative.table(max_new + 1)
        self._length = 0
        self._states_BD = like.new_zeros(count, config.hidden)
        self.extend(torch.full((count,), config.start, device=like.device))

    def logits(self) -> Tensor:
        return self._head(self._states_BD).float()

    def extend(self, ids_B: Tensor) -> None:
        place = self._length
        bias_H1L = self._bias_HRR[:, place : place + 1, : place + 1]
        x_BD = self._words(ids_B)
        for number, block in enumerate(self._blocks):
            kept, h_BD = self._kept[number], block.attention_norm(x_BD)
            kept[:, :, :, place] = block.attention.keys_and_values(h_BD).transpose(0, 1)
            k_BHLK, v_BHLK = kept[:, :, :, : place + 1]
            q_BH1K = block.attention.queries(h_BD)[:, :, None]
            y_BHK = self_attention(q_BH1K, k_BHLK, v_BHLK, bias_HLL=bias_H1L, scale=1.0)[:, :, 0]
            x_BD = x_BD + block.attention.out(y_BHK.flatten(1))
            cross, cross_norm = _cross_of(block)
            y_BHK = self._read.looked_at(number, cross.queries(cross_norm(x_BD)))
            x_BD = x_BD + cross.out(y_BHK.flatten(1))
            x_BD = x_BD + block.feedforward(block.feedforward_norm(x_BD))
        self._states_BD = self._decoder.finished(x_BD)
        self._length += 1

    def take(self, rows_R: Tensor) -> None:
        rows_R = rows_R.to(self._states_BD.device)
        self._states_BD = self._states_BD.index_select(0, rows_R)
        self._kept = [kept.index_select(1, rows_R) for kept in self._kept]
        self._read.take(rows_R)


class _CrossCache:
    """Keys and values of the prompts, for every layer of the decoder, and the prompt of each sequence."""

    def __init__(self, blocks: list[EncoderDecoderBlock], memory: EncoderOutput) -> None:
        layout: GroupedLayout = GroupedLayout.of(memory.lengths_B)
        memory_MD, total = layout.arrange(memory.states_MD), len(memory.lengths_B)
        self._layers: list[list[Tensor]] = []  # for each layer and length of a prompt: [2, P, H, L, K]
        for block in blocks:
            kv_M2HK = _cross_of(block)[0].keys_and_values(memory_MD)
            parts = kv_M2HK.split([count * length for count, length in layout.groups])
            self._layers.append(
                [
                    part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
                    for part, (count, length) in zip(parts, layout.groups, strict=True)
                ]
            )
        by_length = torch.argsort(memory.lengths_B, stable=True).cpu()
        counts = [count for count, _ in layout.groups]
        self._group_B = torch.empty(total, dtype=torch.int64)  # number of the length, for each sequence
        self._place_B = torch.empty(total, dtype=torch.int64)  # and which of the prompts of that length
        self._group_B[by_length] = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        self._place_B[by_length] = torch.cat([torch.arange(count) for count in counts])
        self._choose()

    def looked_at(self, layer: int, q_BHK: Tensor) -> Tensor:
        """Attention of each sequence's query to its prompt: [B, H, K]."""
        y_BHK = torch.empty_like(q_BHK)
        for rows, (k, v) in zip(self._rows, self._chosen[layer], strict=True):
            y_BHK[rows] = self_attention(q_BHK[rows][:, :, None], k, v, scale=1.0)[:, :, 0]
        return y_BHK

    def take(self, rows_R: Tensor) -> None:
        rows = rows_R.cpu()
        group_R, place_R = self._group_B[rows], self._place_B[rows]
        same = torch.equal(group_R, self._group_B) and torch.equal(place_R, self._place_B)
        self._group_B, self._place_B = group_R, place_R
        if not same:  # beams mostly swap within one prompt
            self._choose()

    def _choose(self) -> None:
        """The sequences of each prompt length, and their current keys and values."""
        groups = [group for group in range(len(self._layers[0])) if bool((self._group_B == group).any())]
        device = self._layers[0][0].device if self._layers[0] else torch.device("cpu")
        self._rows = [torch.nonzero(self._group_B == group)[:, 0].to(device) for group in groups]
        places = [self._place_B[self._group_B == group].to(device) for group in groups]
        self._chosen = [
            [by_group[group].index_select(1, at) for group, at in zip(groups, places, strict=True)]
            for by_group in self._layers
        ]


def _cross_of(block: EncoderDecoderBlock) -> tuple[CrossAttention, nn.Module]:
    assert block.cross is not None, "a decoder's block"
    assert block.cross_norm is not None, "a decoder's block"
    return block.cross, block.cross_norm
