"""An encoder–decoder that writes, one token a step: what is computed once is kept (`models/generation/generator.py`).

    under_way = Writing(decoder, words, memory, room=20, head=head)
    under_way.logits()                     # [B, V] of the first token of each
    under_way.extend(ids_B)                # the decoder reads one token more

The prompt is read once, and the keys and values of all decoder layers for it are computed once. What was read stays
sorted by its length, sequences of one length in a block: nothing is padded. What is written is of one length in all
sequences, so its keys and values are one block with room for what is to come.
B sequences, H heads, K size of a head, R tokens written at most, L tokens of a prompt, P prompts of that length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from larvatus.models.nn.attention.cross_attention import CrossAttention
from larvatus.models.nn.attention.grouped import self_attention
from larvatus.models.nn.attention.layout import GroupedLayout
from larvatus.models.nn.encoder_decoder_layers import DecoderStack, EncoderDecoderBlock, EncoderOutput

Head = Callable[[Tensor], Tensor]


class DecoderGenerationState:
    """B sequences under way. Begins with the start token read, so that `logits` are those of the first token."""

    def __init__(
        self, decoder: DecoderStack, words: nn.Embedding, memory: EncoderOutput, *, room: int, head: Head
    ) -> None:
        """At most `room` tokens will be written; `head` turns states into scores of all words."""
        self._decoder, self._words, self._head = decoder, words, head
        self._blocks = [cast(EncoderDecoderBlock, block) for block in decoder.blocks]
        self._read = _CrossCache(self._blocks, memory)
        count, config, like = len(memory.lengths_B), decoder.config, memory.states_MD
        shape = (2, count, config.heads, room + 1, config.size_of_heads)
        self._kept = [like.new_zeros(shape) for _ in self._blocks]  # keys and values of what is written
        self._bias_HRR = decoder.relative.table(room + 1)
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
    """Keys and values of what was read, for every layer of the decoder; and which prompt each sequence has."""

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
        self._group_B = torch.empty(total, dtype=torch.int64)  # the length's number, for each sequence
        self._place_B = torch.empty(total, dtype=torch.int64)  # and which of the prompts of that length
        self._group_B[by_length] = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        self._place_B[by_length] = torch.cat([torch.arange(count) for count in counts])
        self._choose()

    def looked_at(self, layer: int, q_BHK: Tensor) -> Tensor:
        """What the queries of each sequence get from its prompt: [B, H, K]."""
        y_BHK = torch.empty_like(q_BHK)
        for rows, (k, v) in zip(self._rows, self._chosen[layer], strict=True):
            y_BHK[rows] = self_attention(q_BHK[rows][:, :, None], k, v, scale=1.0)[:, :, 0]
        return y_BHK

    def take(self, rows_R: Tensor) -> None:
        rows = rows_R.cpu()
        group_R, place_R = self._group_B[rows], self._place_B[rows]
        same = torch.equal(group_R, self._group_B) and torch.equal(place_R, self._place_B)
        self._group_B, self._place_B = group_R, place_R
        if not same:  # beams mostly change places within one prompt
            self._choose()

    def _choose(self) -> None:
        """The sequences of each length of prompt, and their keys and values as they stand."""
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
