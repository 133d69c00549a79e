"""Whole-word masking (BERT's release of May 2019): all pieces of a word are chosen together.

    words in random order, laid end to end on a circle of T tokens        |chan·ges|the|un·be·liev·able|of|…
    a window of rate · T tokens of it, from a random place on                  └──────────────────┘
    hidden: the words that begin in the window                                  the, un·be·liev·able

A word begins in the window with probability rate, however many pieces it has: the expected number of hidden tokens is
exactly rate · T, and a sequence misses it by less than its longest word (systematic sampling, Madow 1949). The release
takes words in random order while they fit a budget, so that words of many pieces are passed over in short sequences.
The window has at least one token. Each token of a chosen word is then hidden, replaced or kept by a draw of its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.batch import edges
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.rng import random_bits
from larvatus.data.corruption.masking import by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput, HiddenTokens, ReplacementConfig

_TWO_32 = float(1 << 32)


class WholeWordConfig(ReplacementConfig, tag_field="type", tag="whole-words"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)

    def hide(self, text: CorruptionInput) -> HiddenTokens:
        ordinary_T = text.ordinary_T
        bits_4T = text.bits(ordinary_T)
        sequences_T, words_T = text.sequences_N[ordinary_T], text.tokens.words[ordinary_T]
        new_T = np.ones(len(ordinary_T), dtype=np.bool_)
        new_T[1:] = (sequences_T[1:] != sequences_T[:-1]) | (words_T[1:] != words_T[:-1])
        firsts = np.flatnonzero(new_T)  # [W] first token of each word, among the ordinary ones
        sizes = np.diff(firsts, append=len(ordinary_T))
        order = by_sequence_at_random(bits_4T[0, firsts], sequences_T[firsts])
        zeros_B = np.zeros_like(text.items)
        starts_B = random_bits(text.seed, "whole-words", text.epoch, items=text.items, draws=zeros_B)[0] / _TWO_32
        chosen = order[begins_in_window(sizes[order], sequences_T[firsts[order]], starts_B, rate=self.rate)]
        taken = np.zeros(len(firsts), dtype=np.bool_)
        taken[chosen] = True
        chosen_M = np.flatnonzero(np.repeat(taken, sizes))
        return HiddenTokens(places_M=ordinary_T[chosen_M], bits_3M=bits_4T[1:, chosen_M])


def begins_in_window(sizes: Ints, sequences: Ints, starts_B: Doubles, *, rate: float) -> Bools:
    """Which words begin in the window of their sequence: [W], in the order of its circle, and [B] in [0, 1) → [W].

    >>> begins_in_window(np.array([2, 1, 4, 1]), np.array([0, 0, 0, 0]), np.array([0.2]), rate=0.5).tolist()
    [False, True, True, False]
    """
    totals_B = np.bincount(sequences, weights=sizes, minlength=len(starts_B))
    windows_B = np.minimum(totals_B, np.maximum(1.0, rate * totals_B))
    before = edges(sizes)[:-1] - edges(totals_B.astype(np.int64))[sequences]  # tokens of the circle before each word
    far = (before - starts_B[sequences] * totals_B[sequences]) % totals_B[sequences]
    inside: Bools = far < windows_B[sequences]
    return inside
