"""The base of every packing, and its last step: from a plan (which pieces of the block make which sequence) to a batch.

A piece is a run of tokens; a sequence is its pieces, wrapped in special tokens by the vocabulary's `Template`: the
two texts of a pair as ``[CLS] A [SEP] B [SEP]``, or with two separators between them; several pieces of single text
each with the closing of a single text behind it, ``[CLS] A [SEP] B [SEP]`` again, all in one segment.
N tokens of the block, P pieces, B sequences, M tokens of the batch. No loop over sequences or pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np

from larvatus.core.arrays import Bools, Ints, constant_array
from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch, edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.text.template import SequenceTemplate, Template


class PackingSettings(Settings, path="packing.", error=RecipeError):
    """Base of the settings of all packings."""

    gives: ClassVar[tuple[type, ...]] = ()
    """Targets that the packing adds."""
    texts: ClassVar[int] = 1
    """Texts of a sequence: 2 in packings of pairs."""
    least: ClassVar[int] = 1
    """Tokens of text that a sequence needs."""
    different_documents: ClassVar[int] = 1
    """Documents that a block needs."""

    def sequence_template(self, template: Template) -> SequenceTemplate:
        """The special tokens of a sequence: those around texts, unless a packing has others."""
        return template.for_texts(self.texts)

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        """Decide which pieces of a block make which sequence."""
        raise NotImplementedError

    def check(self, counts: CorpusCounts) -> None:
        """Refuse a corpus that this packing cannot use, before any of it is read; by default it can use any."""


@dataclass(frozen=True, eq=False)
class Pieces:
    starts: Ints  # [P] in tokens of the block
    ends: Ints  # [P]
    sequences: Ints  # [P] ascending, from 0
    texts: Ints  # [P] which text of a pair it is, 0 or 1; 0 where there are no pairs
    targets: dict[type, Any]  # targets that hold one value a sequence

    @classmethod
    def single(cls, starts: Ints, ends: Ints) -> Pieces:
        """One piece, one sequence."""
        return cls(starts, ends, np.arange(len(starts), dtype=np.int64), np.zeros_like(starts), {})

    @property
    def count(self) -> int:
        """Sequences (B)."""
        return int(self.sequences[-1]) + 1 if len(self.sequences) else 0

    def part(self, first: int, last: int) -> Pieces:
        """Sequences first … last − 1, counted from 0."""
        low, high = np.searchsorted(self.sequences, [first, last]).tolist()
        targets = {kind: t.cut(tokens=(0, 0), sequences=(first, last)) for kind, t in self.targets.items()}
        taken = slice(low, high)
        return Pieces(self.starts[taken], self.ends[taken], self.sequences[taken] - first, self.texts[taken], targets)

    def in_order(self, order: Ints) -> Pieces:
        """The same sequences in another order: `order[i]` is the sequence that comes i-th."""
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        new = rank[self.sequences]
        by = np.argsort(new, kind="stable")
        targets = {kind: target.map(lambda values: values[order]) for kind, target in self.targets.items()}
        return Pieces(self.starts[by], self.ends[by], new[by], self.texts[by], targets)


class PieceSizes(NamedTuple):
    """Sizes of each piece with its special tokens."""

    first: Bools  # [P] whether it opens its sequence
    before: Ints  # [P] special tokens before it
    sizes: Ints  # [P] all its tokens
    lengths: Ints  # [B] of the sequences

    @classmethod
    def of(cls, pieces: Pieces, template: SequenceTemplate) -> PieceSizes:
        taken = pieces.ends - pieces.starts
        first = np.ones(len(taken), np.bool_)
        first[1:] = pieces.sequences[1:] != pieces.sequences[:-1]
        before = np.where(first, template.opening, 0)
        after = as_array([len(gap) for gap in template.gaps[1:]])[pieces.texts]
        sizes = before + taken + after
        return cls(first, before, sizes, np.bincount(pieces.sequences, weights=sizes).astype(np.int64))


def text_lengths(pieces: Pieces, sizes: PieceSizes) -> Ints:
    """Tokens of each sequence from its first token of text to its last, without the special tokens around them: [B]."""
    taken = pieces.ends - pieces.starts
    starts = edges(sizes.sizes)[:-1] + sizes.before
    filled = np.flatnonzero(taken > 0)
    first, beyond = (np.searchsorted(pieces.sequences[filled], np.arange(pieces.count) + more) for more in (0, 1))
    some = beyond > first
    lengths = np.zeros(pieces.count, np.int64)
    last = filled[beyond[some] - 1]
    lengths[some] = starts[last] + taken[last] - starts[filled[first[some]]]
    return lengths


def assemble(block: TextBlock, pieces: Pieces, template: SequenceTemplate) -> TrainingBatch[Ints]:
    """Lay the sequences end to end, with special tokens, segments and words."""
    taken = pieces.ends - pieces.starts  # [P]
    first, before, sizes, lengths = PieceSizes.of(pieces, template)
    edge = edges(sizes)
    text_starts = edge[:-1] + before

    real = np.ones(int(edge[-1]), np.bool_)  # [M] tokens of the text
    ids = np.empty(len(real), np.int64)
    alone = {*template.text_segments, *chain(*template.gap_segments)}  # the segments there are
    segments = constant_array(min(alone), len(real)) if len(alone) == 1 else np.empty(len(real), np.int64)
    text_ends = text_starts + taken
    gap_starts = [edge[:-1][first], *(text_ends[pieces.texts == text] for text in range(len(template.gaps) - 1))]
    for places, gap, kinds in zip(gap_starts, template.gaps, template.gap_segments, strict=True):
        for offset, (special, kind) in enumerate(zip(gap, kinds, strict=True)):
            at = places + offset
            ids[at], real[at] = special, False
            if len(alone) > 1:
                segments[at] = kind
    source = ranges(taken) + np.repeat(pieces.starts, taken)
    ids[real] = block.ids[source]
    if len(alone) > 1:
        segments[real] = np.repeat(as_array(template.text_segments)[pieces.texts], taken)

    starts = np.zeros(len(real), np.bool_)
    starts[real] = block.words[source]
    starts[text_starts[taken > 0]] = True  # a word cut by the start of a piece counts as one here
    seen = np.cumsum(starts)
    begins = edges(lengths)[:-1]
    earlier: Ints = np.repeat(seen[begins] - starts[begins], lengths)  # words of earlier sequences
    words = np.where(real, seen - earlier - 1, NO_WORD)
    tokens = TokenBatch(ids=ids, lengths=lengths, positions=ranges(lengths), segments=segments, words=words)
    return TrainingBatch(tokens=tokens, targets=pieces.targets)


def cut_long(starts: Ints, block: TextBlock, room: int) -> Ints:
    """Starts of sentences (or documents) with longer ones cut at words into pieces of at most `room`: [S+1] → [S'+1].

    Where a single word is longer than that, it is cut too.
    """
    long = np.flatnonzero(np.diff(starts) > room)
    if not len(long):
        return starts
    words = np.flatnonzero(block.words)
    new: list[int] = []
    for first, last in zip(starts[long].tolist(), starts[long + 1].tolist(), strict=True):
        inside = words[np.searchsorted(words, first) : np.searchsorted(words, last)]
        while last - first > room:
            i = int(np.searchsorted(inside, first + room, side="right")) - 1
            first = int(inside[i]) if i >= 0 and inside[i] > first else first + room
            new.append(first)
    return np.sort(np.concatenate([starts, np.array(new, np.int64)]))


def owners(starts: Ints, documents: Ints) -> Ints:
    """Which document each sentence start belongs to: [S+1] and [D+1] → [S]."""
    return np.searchsorted(documents, starts[:-1], side="right") - 1


def as_array(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)
