"""What packings of two segments share: sentences are gathered up to a limit and cut at a random border into A and B.

    [CLS] A [SEP] B [SEP]

Places are tokens of the block. Unit i (a sentence, or a piece of a long one) starts at `edge[i]`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from larvatus.batch import Ints, SequenceLabels
from larvatus.corpus.block import Block
from larvatus.corpus.format import Counts
from larvatus.corpus.packing.pieces import Pieces, as_array, cut_long
from larvatus.errors import DataError

_DRAWS = 4096

Cut = tuple[int, int, int, int]
"""Where A starts and ends, where B starts and ends."""


class Gathering:
    """The units of a block, and the two things done with them: gather some, cut them in two."""

    def __init__(self, block: Block, room: int) -> None:
        self.room = room
        starts = cut_long(block.sentences, block, room)
        self.edge: list[int] = starts.tolist()
        self.units: list[int] = np.searchsorted(starts, block.documents).tolist()  # first of each document, and the end
        self.words: Ints = np.flatnonzero(block.words)

    def gather(self, unit: int, at: int, last: int, target: int, *, least: int) -> int:
        """The end of the units from `at` that reach `target` tokens and fit; at least `least` units if those fit."""
        reach = bisect_left(self.edge, at + target, unit + 1, last)
        fits = bisect_right(self.edge, at + self.room, unit + 1, last + 1) - 1
        return max(min(max(reach, unit + least), fits), unit + 1)

    def cut(self, unit: int, at: int, end: int, border: float) -> int:
        """Where A ends: a random border of units, or of words in a single one; its end where it is a single token."""
        if end - unit >= 2:
            return self.edge[unit + 1 + int(border * (end - unit - 1))]
        stop = self.edge[end]
        if stop - at == 1:
            return stop
        first, last = np.searchsorted(self.words, (at + 1, stop)).tolist()
        if last > first:
            return int(self.words[first + int(border * (last - first))])
        return at + 1 + int(border * (stop - at - 1))


def aim(room: int, short: float, draws: tuple[float, float]) -> int:
    """How long a pair is to be: the limit, or in a share `short` of the cases a random length below it."""
    return room if draws[0] >= short else 2 + int(draws[1] * (room - 1))


def draws(random: np.random.Generator, count: int) -> Iterator[list[float]]:
    """So many uniform numbers for each pair, drawn many at a time."""
    while True:
        yield from random.random((_DRAWS, count)).tolist()


def pair_pieces(cuts: Sequence[Cut], labels: Sequence[int], kind: type[SequenceLabels[Any]]) -> Pieces:
    """The plan of so many pairs, with their labels."""
    flat = as_array([place for cut in cuts for place in cut]).reshape(-1, 2)  # [2B, 2]: A, B, A, B …
    piece = np.arange(len(flat), dtype=np.int64)
    return Pieces(flat[:, 0], flat[:, 1], piece // 2, piece % 2, {kind: kind(labels=as_array(labels))})


def check_probabilities(config: msgspec.Struct, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"packing.{name} is a probability, from 0 to 1")


def check_sentences(counts: Counts) -> None:
    """Refuse a corpus in which nobody told sentences apart."""
    if counts.sentences <= counts.documents:
        raise DataError(
            "a sentence pair task without sentences: every document of the corpus is one sentence; rebuild it with "
            '--sentences library (or newline), or set packing.type = "single-segment"'
        )
