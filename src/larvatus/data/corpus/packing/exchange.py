"""Random second segments that look like the true ones: two pairs of different documents exchange their B.

    next    A1 B1    A2 B2
    random  A1 B2    A2 B1

All pairs of a block are cut first, as if each were to be "next". Then each is coupled with a pair of another document
(and the same language) whose B is as long, begins and ends at a sentence or inside one as its own does, and has or
lacks a full stop as its own does; a random bit for each couple decides whether they exchange. So everything that is
visible at the ends of A and B, and their lengths, is as frequent among random pairs as among true ones, and no text
influences the label.

A pair that finds no partner that is still free takes one that has a partner already, which then comes twice (or, where
its B is from inside a very long sentence, a stretch from anywhere in another document). Where even so the two do not
fit, what comes twice is cut to fit. A document that is the block's only one of its language takes any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing.pieces import as_array

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
