"""Contiguous text (GPT, Radford et al. 2018; T5, Raffel et al. 2020): documents end to end, cut where a sequence is
full.

    … the last words of a document </s> the first words of the next …

Nothing stands at the edges of a sequence, since they are no edges of the text, and the closing token of the vocabulary,
where it has one, ends each document. With `dressed`, every sequence gets the special tokens that a text gets, and
documents meet without a token between them. Where the next document is of another language, a new sequence begins.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces
from larvatus.data.text.template import SequenceTemplate, Template


class ContiguousConfig(Settings, tag="contiguous"):
    gives: ClassVar[tuple[type, ...]] = ()
    texts: ClassVar[int] = 1
    least: ClassVar[int] = 2
    different_documents: ClassVar[int] = 1

    dressed: bool = False
    """Special tokens around every sequence, as around a text (T5, XLNet); else one at the end of documents (GPT)."""

    def sequence_template(self, template: Template) -> SequenceTemplate:
        """Undressed, a piece that ends a document is called the second text, and has the closing token behind it."""
        if self.dressed:
            return template.single
        closing, segment = template.single.gaps[-1][-1:], template.single.gap_segments[-1][-1:]
        text = template.single.text_segments[0]
        return SequenceTemplate(gaps=((), (), closing), gap_segments=((), (), segment), text_segments=(text, text))

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        """In the text with its closing tokens, n of them after each document, a sequence begins every `length` places.

        Places in that text are counted again from the next multiple of the length where the language changes.
        """
        closing = 0 if self.dressed else len(template.gaps[-1])
        room = template.text_length(length) if self.dressed else length
        sizes = np.diff(block.documents) + closing  # [D]
        begin = _beginnings(sizes, block.languages, room)  # [D] where each document begins in that text
        ends = begin + sizes
        counts = (ends - 1) // room - begin // room + 1  # [D] sequences that hold a part of it
        document = np.repeat(np.arange(len(sizes)), counts)  # [P]
        turn = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
        sequence = (begin // room)[document] + turn
        first = np.maximum(sequence * room, begin[document])
        last = np.minimum((sequence + 1) * room, ends[document])
        shift = block.documents[:-1][document] - begin[document]  # from that text to the block
        text_end = block.documents[1:][document]
        starts, stops = np.minimum(first + shift, text_end), np.minimum(last + shift, text_end)
        closed = (last == ends[document]) & (closing > 0)
        numbers = np.unique(sequence, return_inverse=True)[1].astype(np.int64)  # no sequence is left out
        if self.dressed:
            return _joined(starts, stops, numbers)
        return Pieces(starts, stops, numbers, closed.astype(np.int64), {})

    def check(self, counts: CorpusCounts) -> None:
        """Any text will do."""


def _beginnings(sizes: Ints, languages: Ints | None, room: int) -> Ints:
    """[D] where each document begins when all are laid end to end; one of another language at a multiple of `room`."""
    begin = np.cumsum(sizes) - sizes
    if languages is None:
        return begin
    for document in (np.flatnonzero(np.diff(languages)) + 1).tolist():
        begin[document:] += -begin[document] % room
    return begin


def _joined(starts: Ints, stops: Ints, sequences: Ints) -> Pieces:
    """Pieces of one sequence stand side by side in the block: as one piece."""
    edge = np.flatnonzero(np.diff(sequences, prepend=-1))
    return Pieces.single(starts[edge], stops[np.append(edge[1:], len(stops)) - 1])
