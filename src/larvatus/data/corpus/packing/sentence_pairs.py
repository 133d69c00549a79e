"""Sentence pairs (BERT, Devlin et al. 2019, §3.1 and A.2): does the second text follow the first?

    [CLS] A [SEP] B [SEP]

Consecutive sentences are gathered up to the limit (in one case of ten up to a random shorter length) and cut at a
random border into A and B. Half the time B is of another document, as in BERT's `create_pretraining_data`. Differences,
so that the label is even, shows in nothing but the text, and no text is lost:

- Neither punctuation and capitals at the ends of A and B nor their lengths may tell the label, or the model learns
  those instead of the text.
- BERT samples a random B anywhere, and puts back the true one. Here two pairs of different documents exchange theirs
  (`exchange.py`), so that random pairs are as long and as whole as true ones, and tokens come once in an epoch.
- B comes from a document of A's language where the block has another of it: a change of language would tell the label.
- BERT gathers more than fits and cuts tokens off at either end. Here sentences that do not fit wait for the next pair.
  Where only one fits, B is the beginning of the one that follows, and the next pair begins with its rest.
- Where one sentence is left at the end of a document (BERT then always draws a random B, which makes random pairs more
  frequent), it takes the text before it along as A, which then comes twice.
- A sentence that leaves less than an eighth of the limit, or is a document by itself, is cut in two at a random word;
  one that is longer than the limit is cut into successive pieces first. A document of one token is skipped.

Places are tokens of the block; sentence i (or piece i of long ones) starts at `edge[i]`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import PairLabels, SequenceLabels
from larvatus.core.ranges import Share
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.exchange import SegmentPairs, exchange_segments
from larvatus.data.corpus.packing.pieces import PackingSettings, Pieces, cut_long
from larvatus.data.text.template import SequenceTemplate

_DRAWS = 4096


class SentencePairsConfig(PackingSettings, tag="sentence-pairs"):
    short: Share = 0.1
    """How often a pair aims at a random shorter length."""
    random: Share = 0.5
    """How often B comes from another document."""

    gives: ClassVar[tuple[type, ...]] = (PairLabels,)
    texts: ClassVar[int] = 2
    least: ClassVar[int] = 2
    different_documents: ClassVar[int] = 2

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        if len(np.unique(block.numbers)) < 2:
            raise DataError(
                "sentence pairs need two documents, and here is one; give more documents, "
                "or split it with blank lines (--split blank-line)"
            )
        pairs = _Cutting(block, room, self.short, random).pairs()
        a, b, labels = exchange_segments(pairs, block, share=self.random, room=room, random=random)
        return pair_pieces(a, b, labels, PairLabels)

    def check(self, counts: CorpusCounts) -> None:
        if counts.documents < 2:
            raise DataError(
                "sentence pairs need at least two documents, and the corpus has one; "
                "give more, or put blank lines between documents"
            )
        check_sentences(counts)


class _Cutting:
    """Cuts every document of a block into true pairs. A unit is a sentence, or a piece of a long one."""

    def __init__(self, block: TextBlock, room: int, short: float, random: np.random.Generator) -> None:
        starts = cut_long(block.sentences, block, room)
        self.room, self.short = room, short
        self.edge: list[int] = starts.tolist()
        self.units: list[int] = np.searchsorted(starts, block.documents).tolist()  # first of each document, and the end
        self.words: Ints = np.append(np.flatnonzero(block.words), len(block.ids))
        self.draws = draws(random, 3)

    def pairs(self) -> SegmentPairs:
        edge = self.edge
        cuts: list[tuple[int, int, int, int]] = []
        for document, (unit, last) in enumerate(zip(self.units[:-1], self.units[1:], strict=True)):
            begin = at = edge[unit]  # `at` may lie within the unit
            if edge[last] - begin < 2:
                continue
            while unit < last:
                short, size, border = next(self.draws)
                target = aim(self.room, self.short, (short, size))
                end = gather(edge, unit, at, last, target=target, room=self.room)
                if end - unit > 1:
                    start, middle, stop = at, edge[unit + 1 + int(border * (end - unit - 1))], edge[end]
                else:
                    start, middle, stop = self._single(at, end, begin, last, border)
                cuts.append((document, start, middle, stop))
                at, unit = stop, end
        return SegmentPairs.of(cuts)

    def _single(self, at: int, end: int, begin: int, last: int, border: float) -> tuple[int, int, int]:
        """Start, border and end of a pair where only one unit (or its rest) fits: `at` to edge[end]."""
        stop, room = self.edge[end], self.room
        if room - (stop - at) >= max(1, room // 8):
            if end < last:  # its end comes into this pair, its rest opens the next
                limit = min(at + room, max(stop + 1, self.edge[end + 1] - room // 8))
                word = int(self.words[np.searchsorted(self.words, limit, side="right") - 1])
                return at, stop, word if word > stop else limit
            if at > begin:
                earliest = max(begin, stop - room)
                sentence = self.edge[bisect_left(self.edge, earliest, 0, end)]
                word = int(self.words[np.searchsorted(self.words, earliest)])
                return sentence if sentence < at else word if word < at else earliest, at, stop
        first, beyond = np.searchsorted(self.words, (at + 1, stop)).tolist()
        if beyond > first:
            return at, int(self.words[first + int(border * (beyond - first))]), stop
        return at, at + 1 + int(border * (stop - at - 1)), stop


def gather(edge: Sequence[int], unit: int, at: int, last: int, *, target: int, room: int) -> int:
    """The end of the units from `at` that reach `target` tokens and fit into `room`: two or more units if two fit."""
    reach = bisect_left(edge, at + target, unit + 1, last)
    fits = bisect_right(edge, at + room, unit + 1, last + 1) - 1
    return max(min(max(reach, unit + 2), fits), unit + 1)


def aim(room: int, short: float, draws: tuple[float, float]) -> int:
    """How long a pair is to be: the limit, or in a share `short` of the cases a random length below it."""
    return room if draws[0] >= short else 2 + int(draws[1] * (room - 1))


def draws(random: np.random.Generator, count: int) -> Iterator[list[float]]:
    """`count` uniform numbers for each pair, sampled many at a time."""
    while True:
        yield from random.random((_DRAWS, count)).tolist()


def pair_pieces(a: Ints, b: Ints, labels: Ints, kind: type[SequenceLabels[Any]]) -> Pieces:
    """The plan of pairs [B, 2] and [B, 2] (where A and B start and end), with their labels [B]."""
    flat = np.stack([a, b], axis=1).reshape(-1, 2)  # [2B, 2]: A, B, A, B …
    piece = np.arange(len(flat), dtype=np.int64)
    return Pieces(flat[:, 0], flat[:, 1], piece // 2, piece % 2, {kind: kind(labels=labels)})


def check_sentences(counts: CorpusCounts) -> None:
    """Refuse a corpus whose documents were not split into sentences."""
    if counts.sentences <= counts.documents:
        raise DataError(
            "a sentence pair task without sentences: every document of the corpus is one sentence; rebuild it with "
            '--sentences library (or newline), or set packing.type = "single-segment"'
        )
