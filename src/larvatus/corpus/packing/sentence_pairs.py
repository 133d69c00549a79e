"""Sentence pairs (BERT, Devlin et al. 2019, §3.1 and A.2): does the second stretch of text follow the first?

    [CLS] A [SEP] B [SEP]

Consecutive sentences are gathered up to the limit (in one case of ten up to a random shorter length) and cut at a
random border into A and B. Half the time B is replaced by sentences of another document, and the ones it replaces are
put back, as in BERT's `create_pretraining_data`. Four differences, so that labels stay even, tell nothing by
themselves, and no text is lost:

- The label is drawn first, and A is chosen in the same way for both labels. Where only one sentence is left (BERT
  then always draws a random B, which makes random pairs more frequent), it is cut in two at a random word.
- Only a single left-over token must take a random B. Where its label was to be next, the next random one is made next
  instead.
- B comes from a document of A's language where the block has another of it: a change of language would tell the label.
- Sentences that do not fit wait for the next pair, and longer ones are cut into successive pieces; BERT cuts tokens
  off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import ClassVar

import msgspec
import numpy as np

from larvatus.batch import PairLabels
from larvatus.corpus.block import Block
from larvatus.corpus.format import Counts
from larvatus.corpus.packing.pairs import (
    Cut,
    Gathering,
    aim,
    check_probabilities,
    check_sentences,
    draws,
    pair_pieces,
)
from larvatus.corpus.packing.pieces import Pieces
from larvatus.errors import DataError

NEXT, RANDOM = 0, 1


class SentencePairsConfig(msgspec.Struct, tag="sentence-pairs", frozen=True, kw_only=True, forbid_unknown_fields=True):
    short: float = 0.1
    """How often a pair aims at a random shorter length."""
    random: float = 0.5
    """How often B comes from another document."""

    gives: ClassVar[tuple[type, ...]] = (PairLabels,)
    specials: ClassVar[int] = 3
    least: ClassVar[int] = 2
    different_documents: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_probabilities(self, "short", "random")

    def plan(self, block: Block, *, room: int, random: np.random.Generator) -> Pieces:
        if len(np.unique(block.numbers)) < 2:
            raise DataError(
                "sentence pairs need two documents to draw from, and here is one; give more documents, "
                "or split it with blank lines (--split blank-line)"
            )
        return _Pairing(self, block, room, random).pieces()

    def check(self, counts: Counts) -> None:
        if counts.documents < 2:
            raise DataError(
                "sentence pairs need at least two documents, and the corpus has one; "
                "give more, or put blank lines between documents"
            )
        check_sentences(counts)


class _Pairing(Gathering):
    """One pass over a block."""

    def __init__(self, config: SentencePairsConfig, block: Block, room: int, random: np.random.Generator) -> None:
        super().__init__(block, room)
        self.config = config
        self.numbers: list[int] = block.numbers.tolist()
        self.others = _same_language(block)
        self.draws = draws(random, 6)
        self.owed = 0  # pairs that should have been next but were forced, not yet made good

    def pieces(self) -> Pieces:
        cuts: list[Cut] = []
        labels: list[int] = []
        for document in range(len(self.numbers)):
            self._document(document, cuts, labels)
        return pair_pieces(cuts, labels, PairLabels)

    def _document(self, document: int, cuts: list[Cut], labels: list[int]) -> None:
        edge, last = self.edge, self.units[document + 1]
        unit, at = self.units[document], edge[self.units[document]]  # `at` may lie within the unit
        while unit < last:
            coin, short, size, border, other, place = next(self.draws)
            target = aim(self.room, self.config.short, (short, size))
            end = self.gather(unit, at, last, target, least=2)
            middle = self.cut(unit, at, end, border)
            if self._label(coin, forced=middle == edge[end]) == NEXT:
                cuts.append((at, middle, middle, edge[end]))
                labels.append(NEXT)
                unit, at = end, edge[end]
            else:
                cuts.append((at, middle, *self._elsewhere(document, middle - at, target, other, place)))
                labels.append(RANDOM)
                at = middle  # what B would have been is put back
                unit = bisect_right(edge, at, unit, end + 1) - 1

    def _label(self, coin: float, *, forced: bool) -> int:
        wanted = NEXT if coin >= self.config.random else RANDOM
        if forced:
            self.owed += wanted == NEXT
            return RANDOM
        if wanted == RANDOM and self.owed:
            self.owed -= 1
            return NEXT
        return wanted

    def _other(self, document: int, other: float) -> int:
        """Another document: of the same language, or of any where there is none."""
        rows, place = self.others[document] if self.others else (None, document)
        count = len(rows) if rows else len(self.numbers)
        at = (place + 1 + int(other * (count - 1))) % count
        while self.numbers[rows[at] if rows else at] == self.numbers[document]:  # another part of the same document
            at = (at + 1) % count
        return rows[at] if rows else at

    def _elsewhere(self, document: int, taken: int, target: int, other: float, place: float) -> tuple[int, int]:
        """A stretch of another document to stand for B, as long as the pair still wants and can hold."""
        choice = self._other(document, other)
        first, last = self.units[choice], self.units[choice + 1]
        unit = first + int(place * (last - first))
        at, space = self.edge[unit], self.room - taken
        reach = bisect_left(self.edge, at + max(1, target - taken), unit + 1, last)
        fits = bisect_right(self.edge, at + space, unit + 1, last + 1) - 1
        if fits > unit:
            return at, self.edge[min(reach, fits)]
        word = int(self.words[np.searchsorted(self.words, at + space, side="right") - 1])
        return at, word if word > at else at + space


def _same_language(block: Block) -> list[tuple[list[int] | None, int]] | None:
    """[D] the documents of the same language and the place among them; none where there is no other to draw."""
    if block.languages is None:
        return None
    others: list[tuple[list[int] | None, int]] = [(None, d) for d in range(len(block.numbers))]
    for language in np.unique(block.languages).tolist():
        rows = np.flatnonzero(block.languages == language)
        if len(np.unique(block.numbers[rows])) > 1:
            kept = rows.tolist()
            for place, document in enumerate(kept):
                others[document] = (kept, place)
    return others
