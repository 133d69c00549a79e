"""Whole-word masking (BERT's release of May 2019): all pieces of a word are chosen together.

Words are taken in random order while they fit the sequence's budget; one that would overshoot it is skipped. Each token
of a chosen word is then hidden, replaced or kept by a draw of its own, as in the release.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.batch import Ints, MaskedTokens
from larvatus.corrupt.masking import budgets, by_sequence_at_random
from larvatus.corrupt.replacement import Bits, Flags, ReplacementConfig


class WholeWordConfig(
    ReplacementConfig, tag_field="type", tag="whole-words", frozen=True, kw_only=True, forbid_unknown_fields=True
):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)

    def choose(self, keys: Bits, sequences: Ints, words: Ints, *, count: int) -> Ints:
        """As `MaskingConfig.choose`; at most the budget of a sequence, and short of it only if no further word fits."""
        if not len(keys):
            return np.empty(0, dtype=np.int64)
        new = np.ones(len(keys), dtype=np.bool_)
        new[1:] = (sequences[1:] != sequences[:-1]) | (words[1:] != words[:-1])
        firsts = np.flatnonzero(new)  # [W] first token of each word
        sizes = np.diff(firsts, append=len(keys))
        order = by_sequence_at_random(keys[firsts], sequences[firsts])
        room = budgets(np.bincount(sequences, minlength=count), self.rate)
        taken = np.zeros(len(firsts), dtype=np.bool_)
        taken[order] = take_while_they_fit(sizes[order], sequences[firsts][order], room)
        return np.flatnonzero(np.repeat(taken, sizes))


def take_while_they_fit(sizes: Ints, sequences: Ints, room: Ints) -> Flags:
    """Go through the words of each sequence in order, take each one that still fits its room: [W] → [W].

    All sequences go at once. A round takes the longest run of words that fit, then drops the words that no longer can:
    room only shrinks, so what does not fit now never will. The first word left always fits, so few rounds are needed.
    """
    taken = np.zeros(len(sizes), dtype=np.bool_)
    left, open_words = room.copy(), np.flatnonzero(sizes <= room[sequences])
    while len(open_words):
        size, sequence = sizes[open_words], sequences[open_words]
        so_far = np.cumsum(size)
        begins = np.ones(len(size), dtype=np.bool_)
        begins[1:] = sequence[1:] != sequence[:-1]
        before = np.repeat((so_far - size)[begins], np.diff(np.flatnonzero(begins), append=len(size)))
        fits = so_far - before <= left[sequence]
        taken[open_words[fits]] = True
        left -= np.bincount(sequence, weights=np.where(fits, size, 0), minlength=len(left)).astype(np.int64)
        open_words = open_words[~fits & (size <= left[sequence])]
    return taken
