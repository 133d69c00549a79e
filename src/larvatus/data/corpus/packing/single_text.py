"""Packings of single texts: sentences, segments, whole documents, or running text."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing.pieces import PackingSettings, Pieces, as_array, cut_long, owners
from larvatus.data.text.template import SequenceTemplate, Template


class SentencesConfig(PackingSettings, tag="sentences"):
    """One sentence a sequence (ELMo, Peters et al. 2018): the model does not see its neighbours.

        [CLS] sentence [SEP]

    Sentences longer than a sequence are cut, at words.
    """

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        starts = cut_long(block.sentences, block, template.text_length(length))
        return Pieces.single(starts[:-1], starts[1:])


class SingleSegmentConfig(PackingSettings, tag="single-segment"):
    """Consecutive sentences of one document (SpanBERT, Joshi et al. 2020, §3.3), no pairs.

        [CLS] sentences up to the limit [SEP]

    Sequences start at sentences and never cross documents. Sentences longer than a sequence are cut.
    """

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        starts_array = cut_long(block.sentences, block, room)
        last = np.searchsorted(starts_array, block.documents[1:])[owners(starts_array, block.documents)].tolist()
        starts = starts_array.tolist()
        firsts = []
        i = 0
        while i < len(last):  # one step a sequence
            firsts.append(starts[i])
            i = bisect_right(starts, starts[i] + room, i + 1, last[i] + 1) - 1
        begins = as_array(firsts)
        return Pieces.single(begins, np.append(begins[1:], starts[-1]))


class FullSentencesConfig(PackingSettings, tag="full-sentences"):
    """Consecutive sentences up to the limit, across the end of a document (RoBERTa, Liu et al. 2019, §4.2).

        [CLS] the last sentences of one document [SEP] the first of the next [SEP]

    Every sequence starts at a sentence; a separator marks where a document ends. Sentences longer than a sequence are
    cut. Where the next document is in another language, a new sequence begins (XLM-R, Conneau et al. 2020).
    """

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        starts = cut_long(block.sentences, block, room)  # [S+1]
        owner = owners(starts, block.documents)  # [S]
        separators = owner * len(template.gaps[-1])  # of the documents finished before: `room` must hold them too
        end = (starts[1:] + separators).tolist()
        begin = (starts[:-1] + separators).tolist()
        stop = _language_ends(block, owner)
        firsts = []
        i = 0
        while i < len(begin):  # one step a sequence
            firsts.append(i)
            i = max(bisect_right(end, begin[i] + room, i, stop[i] if stop else None), i + 1)
        # a piece starts at each sequence, and at each document within one
        begins = np.union1d(starts[as_array(firsts)], block.documents[:-1])
        sequences = np.searchsorted(starts[as_array(firsts)], begins, side="right") - 1
        ends = np.append(begins[1:], starts[-1])
        return Pieces(begins, ends, sequences, np.zeros_like(begins), {})


def _language_ends(block: TextBlock, owner: Ints) -> list[int] | None:
    """[S] the sentence after the last that continues in the same language; nothing where there is one language."""
    if block.languages is None:
        return None
    language = block.languages[owner]
    ends = np.append(np.flatnonzero(np.diff(language)) + 1, len(language))
    return np.repeat(ends, np.diff(ends, prepend=0)).tolist()


class DocumentsConfig(PackingSettings, tag="documents"):
    """One document a sequence; a longer one is cut at words into even windows, and nothing of it is lost.

    Documents never meet in a sequence, so nothing leaks between them. For recipes that train on long context.
    """

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


def _windows(words: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, last: int, room: int) -> list[int]:
    """Where windows after the first begin: as even as words allow, none longer than `room`."""
    cuts: list[int] = []
    while last - first > room:
        even = -(-(last - first) // -(-(last - first) // room))  # what is left over the fewest windows that hold it
        i = int(np.searchsorted(words, first + even, side="right")) - 1
        first = int(words[i]) if i >= 0 and words[i] > first else first + even
        cuts.append(first)
    return cuts


class ContiguousConfig(PackingSettings, tag="contiguous"):
    """Documents end to end, cut where a sequence is full (GPT, Radford et al. 2018; T5, Raffel et al. 2020).

        … the last words of a document </s> the first words of the next …

    A sequence has no special tokens at its edges, since they are no edges of the text, and the vocabulary's closing
    token, where it has one, ends each document. With `dressed`, every sequence gets the special tokens of a text, and
    documents meet without a token between them. Where the next document is in another language, a new sequence begins.
    """

    least: ClassVar[int] = 2

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


def _beginnings(sizes: Ints, languages: Ints | None, room: int) -> Ints:
    """[D] where each document begins when all are laid end to end; one of another language at a multiple of `room`."""
    begin = np.cumsum(sizes) - sizes
    if languages is None:
        return begin
    for document in (np.flatnonzero(np.diff(languages)) + 1).tolist():
        begin[document:] += -begin[document] % room
    return begin


def _joined(starts: Ints, stops: Ints, sequences: Ints) -> Pieces:
    """Join pieces of one sequence that are adjacent in the block."""
    edge = np.flatnonzero(np.diff(sequences, prepend=-1))
    return Pieces.single(starts[edge], stops[np.append(edge[1:], len(stops)) - 1])
