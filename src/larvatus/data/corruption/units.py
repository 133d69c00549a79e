"""The units that noise acts on: words, or single tokens; and their order, shuffled here and there.

U units, special tokens among them, laid end to end; N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from larvatus.core.arrays import Bools, Ints
from larvatus.core.batch import NO_WORD, edges, ranges
from larvatus.core.rng import random_bits
from larvatus.data.corruption.masking import by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput

_TWO_32 = float(1 << 32)


@dataclass(frozen=True, eq=False)
class Units:
    firsts: Ints  # [U] where each begins in the flat batch
    sizes: Ints  # [U] its tokens
    sequences: Ints  # [U]
    ordinary: Bools  # [U] all of its tokens may be touched
    stretches: Ints  # [U] the stretch of text it stands in: what lies between special tokens
    text: Bools  # [U] text, not a special token

    @classmethod
    def of(cls, text: CorruptionInput, kind: Literal["words", "tokens"]) -> Units:
        tokens = text.tokens
        new_N = text.places_N == 0
        apart_N = tokens.words == NO_WORD
        stretches_N = np.cumsum(new_N | apart_N)
        if kind == "words":
            new_N[1:] |= (tokens.words[1:] != tokens.words[:-1]) | apart_N[1:]
        else:
            new_N[:] = True
        firsts = np.flatnonzero(new_N)
        good_N = np.zeros(tokens.size, dtype=np.bool_)
        good_N[text.ordinary_T] = True
        return cls(
            firsts=firsts,
            sizes=np.diff(firsts, append=tokens.size),
            sequences=text.sequences_N[firsts],
            ordinary=np.logical_and.reduceat(good_N, firsts) if len(firsts) else good_N,
            stretches=stretches_N[firsts],
            text=~apart_N[firsts],
        )

    def in_order(self, order: Ints) -> tuple[Units, Ints]:
        """The units after a shuffle within runs of ordinary ones, and where each token comes from: [U] → units, [N]."""
        sizes = self.sizes[order]
        source_N = np.repeat(self.firsts[order], sizes) + ranges(sizes)
        shuffle_units = Units(edges(sizes)[:-1], sizes, self.sequences, self.ordinary, self.stretches, self.text)
        return shuffle_units, source_N


def shuffle_units(units: Units, text: CorruptionInput, *, share: float, window: int) -> Ints:
    """Which unit comes where: [U], a permutation that moves about `share` of the ordinary units.

    Runs of ordinary units are cut into windows of `window` units, from a random place of the first one on. A window
    is chosen with probability `share`; its units then change places in one random cycle, so that each of them moves,
    by less than `window` units. Two units swap (Hill et al. 2016); a window with a single unit stays.
    """
    order = np.arange(len(units.firsts))
    movable_R = np.flatnonzero(units.ordinary)
    if not share or not len(movable_R):
        return order
    sequences_R = units.sequences[movable_R]
    new_R = np.ones(len(movable_R), dtype=np.bool_)
    new_R[1:] = (np.diff(movable_R) > 1) | (np.diff(sequences_R) > 0)
    runs = np.diff(np.flatnonzero(new_R), append=len(movable_R))
    zeros_B = np.zeros_like(text.items)
    phase_B = random_bits(text.seed, "noise/windows", text.epoch, items=text.items, draws=zeros_B)[0]
    phase_B = ((phase_B * np.uint64(window)) >> np.uint64(32)).astype(np.int64)
    begins = np.flatnonzero(new_R | ((ranges(runs) + phase_B[sequences_R]) % window == 0))
    sizes = np.diff(begins, append=len(movable_R))
    bits_4R = text.bits(units.firsts[movable_R], "noise/order")
    chosen = (bits_4R[0, begins] / _TWO_32 < share) & (sizes > 1)

    moved_M = np.flatnonzero(np.repeat(chosen, sizes))
    sizes = sizes[chosen]
    cycle_M = movable_R[moved_M[by_sequence_at_random(bits_4R[1, moved_M], np.repeat(np.arange(len(sizes)), sizes))]]
    follows_M = np.arange(len(cycle_M)) + 1
    follows_M[np.cumsum(sizes) - 1] -= sizes  # the last of a window is followed by its first
    order[cycle_M] = cycle_M[follows_M]
    return order


def take_fitting(sizes: Ints, sequences: Ints, room: Ints) -> Bools:
    """Go through the units of each sequence in order, take each one that still fits its room: [W] → [W].

    All sequences go at once. A round takes the longest run of units that fit, then drops those that no longer can:
    room only shrinks, so what does not fit now never will. The first one left always fits, so few rounds are needed.
    """
    taken = np.zeros(len(sizes), dtype=np.bool_)
    left, open_units = room.copy(), np.flatnonzero(sizes <= room[sequences])
    while len(open_units):
        size, sequence = sizes[open_units], sequences[open_units]
        so_far = np.cumsum(size)
        begins = np.ones(len(size), dtype=np.bool_)
        begins[1:] = sequence[1:] != sequence[:-1]
        before = np.repeat((so_far - size)[begins], np.diff(np.flatnonzero(begins), append=len(size)))
        fits = so_far - before <= left[sequence]
        taken[open_units[fits]] = True
        left -= np.bincount(sequence, weights=np.where(fits, size, 0), minlength=len(left)).astype(np.int64)
        open_units = open_units[~fits & (size <= left[sequence])]
    return taken
