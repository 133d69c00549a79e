"""Whole documents, one a sequence; a longer one is cut into even windows, at words, and nothing of it is lost.

Documents never meet in a sequence, so nothing leaks between them. For recipes that train on long context.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces, as_array
from larvatus.data.text.template import SequenceTemplate


class DocumentsConfig(Settings, tag="documents"):
    gives: ClassVar[tuple[type, ...]] = ()
    texts: ClassVar[int] = 1
    least: ClassVar[int] = 1
    different_documents: ClassVar[int] = 1

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        sizes = np.diff(block.documents)
        long = np.flatnonzero(sizes > room)
        if not len(long):
            return Pieces.single(block.documents[:-1], block.documents[1:])
        cuts = [block.documents]
        words = np.flatnonzero(block.words)
        for d in long.tolist():
            first, last = int(block.documents[d]), int(block.documents[d + 1])
            inside = words[np.searchsorted(words, first) : np.searchsorted(words, last)]
            cuts.append(as_array(_windows(inside, first, last, room)))
        starts = np.sort(np.concatenate(cuts))
        return Pieces.single(starts[:-1], starts[1:])

    def check(self, counts: CorpusCounts) -> None:
        """Any text will do."""


def _windows(words: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, last: int, room: int) -> list[int]:
    """Where windows after the first begin: as even as words allow, none longer than `room`."""
    cuts: list[int] = []
    while last - first > room:
        even = -(-(last - first) // -(-(last - first) // room))  # what is left over the fewest windows that hold it
        i = int(np.searchsorted(words, first + even, side="right")) - 1
        first = int(words[i]) if i >= 0 and words[i] > first else first + even
        cuts.append(first)
    return cuts
