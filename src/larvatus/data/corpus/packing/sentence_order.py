"""Sentence order (ALBERT, Lan et al. 2020, §3.1): are two neighbouring texts in order?

    [CLS] A [SEP] B [SEP]

Consecutive sentences of one document are gathered up to the limit (in one case of ten up to a random shorter length)
and cut in two at a random boundary. Half the time the two are swapped. The topic then reveals nothing about the label,
as it does if B comes from another document; only coherence does. Nothing else may distinguish the earlier segment from
the later one, so there are differences from the released `create_pretraining_data`:

- Both stretches are whole sentences: those that do not fit wait for the next pair (released: tokens are cut off).
- Where two sentences do not fit, as many as fit into m sequences are gathered, and both stretches are cut into m parts
  that are paired one by one: the first parts of both, …, the last parts of both. Either both begin inside a sentence or
  neither does, and so for their ends (a stretch too short to be cut so comes with several parts of the other).
- Documents are gathered from their front or from their back, at random (long ones in runs of 32 sequences, in turn): a
  sentence that did not fit, a long one as a rule, is as often the first of its pair as the last.
- Where one sentence is left (released: its second segment is sampled from another document, which the topic reveals),
  it is paired with its neighbour, which then occurs twice. A document of one sentence has no order: it is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import count, pairwise
from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.pretraining_targets import OrderLabels
from larvatus.core.ranges import Share
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import PackingSettings, Pieces, as_array
from larvatus.data.corpus.packing.sentence_pairs import aim, check_sentences, draws, gather, pair_pieces
from larvatus.data.text.template import SequenceTemplate

ORDERED, SWAPPED = 0, 1
_LEAST_PART = 4  # tokens: parts are no shorter where the limit is not itself a few tokens
_RUN = 32  # sequences that are gathered in one direction
_TRIES = 3  # more parts are tried before words are cut


class SentenceOrderPackingConfig(PackingSettings, tag="sentence-order"):
    short: Share = 0.1
    """How often a pair aims at a random shorter length."""
    swapped: Share = 0.5
    """How often the two segments change places."""

    gives: ClassVar[tuple[type, ...]] = (OrderLabels,)
    texts: ClassVar[int] = 2
    least: ClassVar[int] = 2

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        cutting = _Cutting(block, room, self.short, random)
        cuts = [places for stretches in cutting.stretches() for places in cutting.parts(*stretches)]
        places = as_array([place for cut in cuts for place in cut]).reshape(-1, 2, 2)  # [B, earlier and later, 2]
        swap = random.random(len(places)) < self.swapped
        places[swap] = places[swap, ::-1]
        return pair_pieces(places[:, 0], places[:, 1], np.where(swap, SWAPPED, ORDERED), OrderLabels)

    def check(self, counts: CorpusCounts) -> None:
        check_sentences(counts)


class _Cutting:
    """Cuts the documents of a block into pairs of neighbouring stretches."""

    def __init__(self, block: TextBlock, room: int, short: float, random: np.random.Generator) -> None:
        self.room, self.short = room, short
        self.edge: list[int] = block.sentences.tolist()
        self.documents: list[int] = np.searchsorted(block.sentences, block.documents).tolist()
        self.words: Ints = np.flatnonzero(block.words)
        self.draws = draws(random, 3)

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Start, border and end of both stretches, in tokens of the block, however long."""
        for first, last in zip(self.documents[:-1], self.documents[1:], strict=True):
            if last - first < 2:
                continue
            backward = next(self.draws)[0] < 0.5
            for edge in self._runs(first, last):
                if backward:  # the same walk over the mirror image
                    edge = [-place for place in reversed(edge)]
                for start, middle, stop in self._walk(edge):
                    yield (-stop, -middle, -start) if backward else (start, middle, stop)
                backward = not backward

    def _runs(self, first: int, last: int) -> Iterator[list[int]]:
        """The edges of a document's sentences in runs of a few sequences, of two sentences at the least."""
        while first < last:
            end = max(first + 2, bisect_right(self.edge, self.edge[first] + _RUN * self.room, first, last + 1) - 1)
            if last - end < 2:
                end = last
            yield self.edge[first : end + 1]
            first = end

    def _walk(self, edge: list[int]) -> Iterator[tuple[int, int, int]]:
        sentence, last = 0, len(edge) - 1
        while sentence < last:
            short, size, border = next(self.draws)
            sentence = min(sentence, last - 2)  # a single one that is left takes the one before it along
            at, target, room = edge[sentence], aim(self.room, self.short, (short, size)), self.room
            two = edge[sentence + 2] - at
            if two > room:
                whole = room - min(_LEAST_PART, room // 8)  # parts come out uneven: they are cut at words
                target = room = whole * -(-two // whole)
            end = gather(edge, sentence, at, last, target=target, room=room)
            yield at, edge[sentence + 1 + int(border * (end - sentence - 1))], edge[end]
            sentence = end

    def parts(self, start: int, middle: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Where the earlier and the later stretch of each pair start and end: one pair, or m of parts that fit."""
        fewest = -(-(stop - start) // self.room)
        if fewest == 1:
            yield start, middle, middle, stop
            return
        for m in count(fewest):
            at_words = m < fewest + _TRIES
            earlier, later = self._even(start, middle, m, at_words), self._even(middle, stop, m, at_words)
            pairs = [(k * (len(earlier) - 1) // m, k * (len(later) - 1) // m) for k in range(m)]
            if all(earlier[i + 1] - earlier[i] + later[j + 1] - later[j] <= self.room for i, j in pairs):
                break
        for i, j in pairs:
            yield earlier[i], earlier[i + 1], later[j], later[j + 1]

    def _even(self, start: int, stop: int, m: int, at_words: bool) -> list[int]:
        """Edges of m even parts, fewer of a short stretch; at words where there are enough of them."""
        size = stop - start
        m = min(m, max(1, size // max(1, min(_LEAST_PART, self.room // 4))))
        even = start + np.arange(1, m) * size // m
        if at_words:
            edge = [start, *self.words[np.searchsorted(self.words, even, side="right") - 1].tolist(), stop]
            if all(before < after for before, after in pairwise(edge)):
                return edge
        return [start, *even.tolist(), stop]
