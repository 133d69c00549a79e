"""Sentence pairs (BERT, Devlin et al. 2019, §3.1 and A.2): does the second text follow the first?

    [CLS] A [SEP] B [SEP]

Consecutive sentences are gathered up to the limit (in one case of ten up to a random shorter length) and cut at a
random border into A and B. Half the time B comes from another document, as in BERT's `create_pretraining_data`. Ours
differs in the following, so that the label is even, shows in nothing but the text, and no text is lost:

- Neither punctuation and capitals at the ends of A and B nor their lengths may tell the label, or the model learns
  those instead of the text.
- BERT samples a random B anywhere, and puts back the true one. Here two pairs of different documents exchange theirs,
  so that random pairs are as long and as whole as true ones, and tokens come once in an epoch.
- B comes from a document of A's language where the block has another of it: a change of language would tell the label.
- BERT gathers more than fits and cuts tokens off at either end. Here sentences that do not fit wait for the next pair.
  Where only one fits, B is the beginning of the one that follows, and the next pair begins with its rest.
- Where one sentence is left at the end of a document (BERT then always samples a random B, which makes random pairs
  more frequent), it takes the text before it along as A, which then comes twice.
- A sentence that leaves less than an eighth of the limit, or is a document by itself, is cut in two at a random word;
  one that is longer than the limit is cut into successive pieces first. A document of one token is skipped.

**Exchange.** All pairs of a block are cut first, as if each were to be "next". Then each is coupled with a pair of
another document (and the same language) whose B is as long, begins and ends at a sentence or inside one as its own
does, and has or lacks a full stop as its own does. A random bit for each couple decides whether they exchange:

    next    A1 B1    A2 B2
    random  A1 B2    A2 B1

So everything that is visible at the ends of A and B, and their lengths, is as frequent among random pairs as among true
ones, and no text influences the label. A pair that finds no free partner takes one that has a partner already, which
then comes twice (or, where its B is from inside a very long sentence, a stretch from anywhere in another document).
Where even so the two do not fit, what comes twice is cut to fit. A document that is the block's only one of its
language takes any other.

Places are tokens of the block; sentence i (or piece i of long ones) starts at `edge[i]`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import PairLabels, SequenceLabels
from larvatus.core.ranges import Share
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import PackingSettings, Pieces, as_array, cut_long
from larvatus.data.text.template import SequenceTemplate

NEXT, RANDOM = 0, 1
_NO_OTHER = -1  # languages of which the block has one document
_INSIDE = 0  # the kind of B that begins and ends inside a sentence
_TRIES = 16  # free pairs looked at, from the nearest in length on
_WINDOW = 128  # pairs looked at on either side, where none was free


@dataclass(frozen=True, eq=False)
class SegmentPairs:
    """True pairs: A is ``a[i, 0]:a[i, 1]`` in tokens of the block, B is ``b[i, 0]:b[i, 1]``."""

    a: Ints  # [P, 2]
    b: Ints  # [P, 2]
    rows: Ints  # [P] the block's document that each is of

    @classmethod
    def of(cls, cuts: Sequence[tuple[int, int, int, int]]) -> SegmentPairs:
        """From (document, start of A, start of B, end of B)."""
        flat = as_array([place for cut in cuts for place in cut]).reshape(-1, 4)
        return cls(flat[:, 1:3], flat[:, 2:4], flat[:, 0])

    def and_more(self, cuts: Sequence[tuple[int, int, int, int]]) -> SegmentPairs:
        more = SegmentPairs.of(cuts)
        joined = (np.concatenate(arrays) for arrays in ((self.a, more.a), (self.b, more.b), (self.rows, more.rows)))
        return SegmentPairs(*joined)


def exchange_segments(
    pairs: SegmentPairs, block: TextBlock, *, share: float, room: int, random: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """A and B [B, 2] and the labels [B] of all pairs, a `share` of the couples with their B exchanged."""
    coupling = _Coupling(pairs, block, room, random)
    couples, alone = coupling.couples()
    pairs = pairs.and_more(coupling.twins)
    swap = random.random(len(couples)) < share
    first = couples.ravel()
    second = np.where(swap[:, None], couples[:, ::-1], couples).ravel()
    a, b = pairs.a[first], pairs.b[second]
    _trim(a, b, block.words, room)
    labels = np.repeat(np.where(swap, RANDOM, NEXT), 2)
    return (
        np.concatenate([a, pairs.a[alone]]),
        np.concatenate([b, pairs.b[alone]]),
        np.concatenate([labels, np.full(len(alone), NEXT)]),
    )


class _Coupling:
    """Who exchanges with whom."""

    def __init__(self, pairs: SegmentPairs, block: TextBlock, room: int, random: np.random.Generator) -> None:
        self.room, self.random, self.pairs, self.block = room, random, pairs, block
        self.a_size, self.b_size = pairs.a[:, 1] - pairs.a[:, 0], pairs.b[:, 1] - pairs.b[:, 0]
        self.numbers = block.numbers[pairs.rows]
        self.languages = _languages(block)
        self.group = self.languages[pairs.rows]
        self.kind = _kinds(pairs.b, block)
        shuffled = random.random(len(pairs.rows))
        self.order = np.lexsort((shuffled, self.b_size, self.kind, self.group))
        self.twins: list[tuple[int, int, int, int]] = []

    def couples(self) -> tuple[Ints, Ints]:
        """Couples [C, 2], of which the second may have another partner as well, and those that nobody can join."""
        couples, unmatched = self._free()
        alone: list[int] = []
        others: dict[tuple[int, int], Ints] = {}
        for i in unmatched:
            twin = self._twin(i) if self.kind[i] % 4 == _INSIDE else None
            if twin is not None:
                couples.append((i, len(self.kind) + len(self.twins)))
                self.twins.append(twin)
                continue
            key = int(self.group[i]), int(self.numbers[i])
            if key not in others:
                others[key] = self._others(*key)
            partner = self._again(i, others[key])
            if partner is None:
                alone.append(i)
            else:
                couples.append((i, partner))
        return as_array([i for couple in couples for i in couple]).reshape(-1, 2), as_array(alone)

    def _free(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Couples of pairs that are like each other, each in one couple; and those left."""
        a, b, numbers = self.a_size.tolist(), self.b_size.tolist(), self.numbers.tolist()
        alike = (8 * self.group + self.kind).tolist()
        room = self.room
        couples: list[tuple[int, int]] = []
        unmatched: list[int] = []
        waiting: list[int] = []
        for i in self.order.tolist():
            if waiting and alike[waiting[-1]] != alike[i]:
                unmatched += waiting
                waiting = []
            for k in range(len(waiting) - 1, max(len(waiting) - _TRIES, 0) - 1, -1):
                j = waiting[k]
                if numbers[i] != numbers[j] and a[i] + b[j] <= room and a[j] + b[i] <= room:
                    couples.append((i, j))
                    del waiting[k]
                    break
            else:
                waiting.append(i)
        return couples, unmatched + waiting

    def _twin(self, i: int) -> tuple[int, int, int, int] | None:
        """A pair of the same lengths from anywhere in another document: for B that is from inside a sentence."""
        ends, sizes = self.block.documents[1:], np.diff(self.block.documents)
        a, b = int(self.a_size[i]), int(self.b_size[i])
        other = (self.block.numbers != self.numbers[i]) & (sizes > a + b)
        if self.group[i] != _NO_OTHER:
            other &= self.languages == self.group[i]
        rows = np.flatnonzero(other)
        if not len(rows):
            return None
        row = int(self.random.choice(rows))
        start = int(ends[row] - sizes[row]) + int(self.random.integers(sizes[row] - a - b))
        words = start + np.flatnonzero(self.block.words[start : start + a + b + 1])
        after = words[words >= start + a].tolist()
        if not after:
            return None
        middle, last = after[0], after[-1]
        first = int(words[np.searchsorted(words, middle - a)])  # neither A nor B is longer than what it replaces
        return (row, first, middle, last) if first < middle < last else None

    def _others(self, group: int, number: int) -> Ints:
        """Pairs of other documents of the language, or of any where it has no other, by the length of B."""
        same = (self.group == group) if group != _NO_OTHER else np.ones(len(self.group), np.bool_)
        rows = np.flatnonzero(same & (self.numbers != number))
        return rows[np.argsort(self.b_size[rows], kind="stable")]

    def _again(self, i: int, others: Ints) -> int | None:
        """The most similar of the pairs nearest in length; of those that fit, if any does."""
        if not len(others):
            return None
        middle = int(np.searchsorted(self.b_size[others], self.b_size[i]))
        near = others[max(0, middle - _WINDOW) : middle + _WINDOW]
        over = np.maximum(self.a_size[i] + self.b_size[near], self.a_size[near] + self.b_size[i]) > self.room
        apart = np.abs(self.b_size[near] - self.b_size[i]) + self.room * (self.kind[near] != self.kind[i])
        unlike = apart + 4 * self.room * over + self.random.random(len(near))  # equals are taken in turn
        return int(near[np.argmin(unlike)])


def _trim(a: Ints, b: Ints, words: npt.NDArray[np.bool_], room: int) -> None:
    """Cut what is too long, at words: of each couple's two pairs, B of the first and A of the second come twice."""
    over = np.flatnonzero(a[:, 1] - a[:, 0] + b[:, 1] - b[:, 0] > room)
    for i in over.tolist():
        if i % 2 == 0:
            stop = int(b[i, 0]) + room - int(a[i, 1] - a[i, 0])
            inside = np.flatnonzero(words[b[i, 0] + 1 : stop + 1])
            b[i, 1] = b[i, 0] + 1 + inside[-1] if len(inside) else stop
        else:
            start = int(a[i, 1]) - (room - int(b[i, 1] - b[i, 0]))
            inside = np.flatnonzero(words[start : a[i, 1]])
            a[i, 0] = start + inside[0] if len(inside) else start


def _kinds(b: Ints, block: TextBlock) -> Ints:
    """[P] does B begin at a sentence, end at one, end as most sentences do (in most languages, with a full stop)?

    The last keeps lists and verse, where no line has a full stop, from telling true pairs by what both lack.
    """
    border = np.zeros(len(block.ids) + 1, np.bool_)
    border[block.sentences] = True
    values, counts = np.unique(block.ids[block.sentences[1:] - 1], return_counts=True)
    usual = block.ids[b[:, 1] - 1] == values[np.argmax(counts)]
    kinds: Ints = 4 * usual.astype(np.int64) + 2 * border[b[:, 0]] + border[b[:, 1]]
    return kinds


def _languages(block: TextBlock) -> Ints:
    """[D] the language of each document, `_NO_OTHER` where the block has no other document of it."""
    languages = np.zeros(len(block.numbers), np.int64) if block.languages is None else block.languages.copy()
    for language in np.unique(languages).tolist():
        rows = languages == language
        if len(np.unique(block.numbers[rows])) < 2:
            languages[rows] = _NO_OTHER
    return languages


# Cutting sentences into pairs.

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
