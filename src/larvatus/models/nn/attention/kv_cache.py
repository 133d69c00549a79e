"""Keys and values of sequences under way, so that a new token is the only one that a step computes.

    cache = Cache.of(lengths, layers=12, room=20)
    cache.keep(0, qkv_N3HK[:, 1:])             # of the prompts, in the order of `Grouped`: once for each layer
    cache.attend(0, qkv_B3HK)                  # of one new token each, which sees all before it and itself: [B, H, K]
    cache.advance()                            # after the last layer

Nothing is padded: sequences of one length lie in one block, as in `Grouped`, and since all get a token at each step,
they stay of one length. They stand sorted by length; `order` says which is which.
B sequences in groups of G, N tokens of the prompts, H heads, K size of a head, L tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.models.nn.attention.grouped import self_attention


@dataclass(eq=False)
class _Block:
    """Sequences of one length."""

    length: int
    count: int
    room: int
    """Tokens that it can hold."""
    layers: list[Tensor] = field(default_factory=list)
    """For each layer [2, G, H, room, K], filled up to `length`."""

    def take(self, rows_G: Tensor) -> _Block:
        layers = []
        for kv in self.layers:
            taken = kv.new_empty(2, len(rows_G), *kv.shape[2:])
            taken[:, :, :, : self.length] = kv[:, rows_G, :, : self.length]
            layers.append(taken)
        return _Block(self.length, len(rows_G), self.room, layers)


@dataclass(eq=False)
class KeyValueCache:
    blocks: list[_Block]
    order: Ints  # [B] the sequence that stands at each place, by length
    device: torch.device

    @classmethod
    def of(cls, lengths: Ints, *, room: int, device: torch.device) -> KeyValueCache:
        """Empty, for prompts of these lengths, to which at most `room` tokens are added."""
        sizes, counts = np.unique(lengths, return_counts=True)
        blocks = [
            _Block(length=size, count=count, room=size + room)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        ]
        return cls(blocks, np.argsort(lengths, kind="stable"), device)

    @property
    def lengths(self) -> Ints:
        """[B] in the cache's order."""
        return np.repeat([block.length for block in self.blocks], [block.count for block in self.blocks])

    def keep(self, kv_N2HK: Tensor) -> None:
        """The keys and values of the prompts in the next layer."""
        parts = torch.split(kv_N2HK, [block.count * block.length for block in self.blocks])
        for block, part in zip(self.blocks, parts, strict=True):
            kv_2GHLK = part.unflatten(0, (block.count, block.length)).permute(2, 0, 3, 1, 4)
            held = kv_2GHLK.new_empty(*kv_2GHLK.shape[:3], block.room, kv_2GHLK.shape[-1])
            held[:, :, :, : block.length] = kv_2GHLK
            block.layers.append(held)

    def attend(self, layer: int, qkv_B3HK: Tensor, *, window: int = 0) -> Tensor:
        """Attention of the newest token of each sequence to itself and those before, whose keys and values are kept.

        With a window, to those at most so far back.
        """
        out = []
        parts = torch.split(qkv_B3HK, [block.count for block in self.blocks])
        for block, qkv_G3HK in zip(self.blocks, parts, strict=True):
            held, last = block.layers[layer], block.length
            held[:, :, :, last] = qkv_G3HK[:, 1:].transpose(0, 1)
            first = max(0, last - window) if window else 0
            k_GHLK, v_GHLK = held[:, :, :, first : last + 1]
            out.append(self_attention(qkv_G3HK[:, 0, :, None], k_GHLK, v_GHLK)[:, :, 0])
        return torch.cat(out)

    def advance(self) -> None:
        """The newest token belongs to what is there."""
        for block in self.blocks:
            block.length += 1

    def take(self, rows: Ints) -> None:
        """Keep, repeat or reorder sequences."""
        place_of = np.empty_like(self.order)
        place_of[self.order] = np.arange(len(self.order))
        places = place_of[rows]
        borders = np.cumsum([block.count for block in self.blocks])
        block_of = np.searchsorted(borders, places, side="right")
        blocks = []
        for number, block in enumerate(self.blocks):
            chosen = places[block_of == number] - (borders[number] - block.count)
            if np.array_equal(chosen, np.arange(block.count)):
                blocks.append(block)
            elif len(chosen):
                blocks.append(block.take(torch.from_numpy(chosen).to(self.device)))
        self.blocks = blocks
        self.order = np.argsort(block_of, kind="stable")
