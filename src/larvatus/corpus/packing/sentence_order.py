"""Sentence order (ALBERT, Lan et al. 2020, §3.1): do two stretches of text that stand side by side come in order?

    [CLS] A [SEP] B [SEP]

Consecutive sentences of one document are gathered up to the limit (in one case of ten up to a random shorter length)
and cut at a random border in two. Half the time the two are swapped. Topic then says nothing of the label, as it does
where B comes from another document; coherence does. Three differences from the released `create_pretraining_data`:

- Where only one sentence is left (released: its second segment is drawn from another document, which topic betrays), it
  is cut in two at a random word.
- A single token that is left (at the end of a document, or before a sentence that fills a sequence) takes along what
  stands before it or after it, which then comes twice. A document that is a single token has no order: it is left out.
- Sentences that do not fit wait for the next pair, and longer ones are cut into successive pieces; released: tokens are
  cut off.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from larvatus.batch import OrderLabels
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

ORDERED, SWAPPED = 0, 1


class SentenceOrderConfig(msgspec.Struct, tag="sentence-order", frozen=True, kw_only=True, forbid_unknown_fields=True):
    short: float = 0.1
    """How often a pair aims at a random shorter length."""
    swapped: float = 0.5
    """How often the two segments change places."""

    gives: ClassVar[tuple[type, ...]] = (OrderLabels,)
    specials: ClassVar[int] = 3
    least: ClassVar[int] = 2
    different_documents: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_probabilities(self, "short", "swapped")

    def plan(self, block: Block, *, room: int, random: np.random.Generator) -> Pieces:
        units = Gathering(block, room)
        drawn = draws(random, 4)
        cuts: list[Cut] = []
        labels: list[int] = []
        for first, last in zip(units.units[:-1], units.units[1:], strict=True):
            unit = first
            while unit < last:
                coin, short, size, border = next(drawn)
                at = units.edge[unit]
                end = units.gather(unit, at, last, aim(room, self.short, (short, size)), least=2)
                middle, stop = units.cut(unit, at, end, border), units.edge[end]
                if middle == stop:  # a single token
                    if last - first == 1:
                        break
                    at, middle, stop = _with_neighbour(units, unit, first)
                swap = coin < self.swapped
                cuts.append((middle, stop, at, middle) if swap else (at, middle, middle, stop))
                labels.append(SWAPPED if swap else ORDERED)
                unit = end
        return pair_pieces(cuts, labels, OrderLabels)

    def check(self, counts: Counts) -> None:
        check_sentences(counts)


def _with_neighbour(units: Gathering, unit: int, first: int) -> tuple[int, int, int]:
    """Start, border and end of a pair: a unit of one token and as much as fits of the one before or after it."""
    at, stop = units.edge[unit], units.edge[unit + 1]
    if unit > first:
        earliest = max(units.edge[unit - 1], stop - units.room)
        word, beyond = np.searchsorted(units.words, (earliest, at)).tolist()
        return int(units.words[word]) if word < beyond else earliest, at, stop
    latest = min(units.edge[unit + 2], at + units.room)
    word = int(units.words[np.searchsorted(units.words, latest, side="right") - 1])
    return at, stop, latest if latest == units.edge[unit + 2] or word <= stop else word
