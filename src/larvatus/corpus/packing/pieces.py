"""The last step of every packing: from a plan (which stretches of the block make which sequence) to a flat batch.

A piece is a stretch of tokens followed by a separator; a sequence is [CLS] and its pieces: ``[CLS] A [SEP] B [SEP]``.
N tokens of the block, P pieces, B sequences, M tokens of the batch. No loop over sequences or pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.arrays import Ints
from larvatus.batch import NO_WORD, TokenBatch, TrainingBatch, edges, ranges
from larvatus.corpus.block import Block


@dataclass(frozen=True)
class SpecialIds:
    cls: int
    sep: int


@dataclass(frozen=True, eq=False)
class Pieces:
    starts: Ints  # [P] in tokens of the block
    ends: Ints  # [P]
    sequences: Ints  # [P] ascending, from 0
    segments: Ints  # [P]
    targets: dict[type, Any]  # targets that hold one value a sequence

    @classmethod
    def single(cls, starts: Ints, ends: Ints) -> Pieces:
        """One piece, one sequence."""
        return cls(starts, ends, np.arange(len(starts), dtype=np.int64), np.zeros_like(starts), {})

    @property
    def count(self) -> int:
        """Sequences (B)."""
        return int(self.sequences[-1]) + 1 if len(self.sequences) else 0

    def in_order(self, order: Ints) -> Pieces:
        """The same sequences in another order: `order[i]` is the sequence that comes i-th."""
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        new = rank[self.sequences]
        by = np.argsort(new, kind="stable")
        targets = {kind: target.map(lambda values: values[order]) for kind, target in self.targets.items()}
        return Pieces(self.starts[by], self.ends[by], new[by], self.segments[by], targets)


def assemble(block: Block, pieces: Pieces, special: SpecialIds) -> TrainingBatch[Ints]:
    """Lay the sequences end to end, with special tokens, segments and words."""
    taken = pieces.ends - pieces.starts  # [P]
    first = np.ones(len(taken), np.bool_)
    first[1:] = pieces.sequences[1:] != pieces.sequences[:-1]
    sizes = taken + 1 + first  # [P] with the separator, and [CLS] before the first
    lengths = np.bincount(pieces.sequences, weights=sizes).astype(np.int64)  # [B]
    edge = edges(sizes)
    seps, clss = edge[1:] - 1, edge[:-1][first]

    real = np.ones(int(edge[-1]), np.bool_)  # [M] tokens of the text
    real[seps] = real[clss] = False
    source = ranges(taken) + np.repeat(pieces.starts, taken)
    ids = np.empty(len(real), np.int64)
    ids[seps], ids[clss] = special.sep, special.cls
    ids[real] = block.ids[source]

    starts = np.zeros(len(real), np.bool_)
    starts[real] = block.words[source]
    starts[(edge[:-1] + first)[taken > 0]] = True  # a word cut by the start of a piece counts as one here
    seen = np.cumsum(starts)
    before = np.repeat(seen[clss], lengths)  # words of earlier sequences: [CLS] starts none
    words = np.where(real, seen - before - 1, NO_WORD)
    tokens = TokenBatch(
        ids=ids, lengths=lengths, positions=ranges(lengths), segments=np.repeat(pieces.segments, sizes), words=words
    )
    return TrainingBatch(tokens=tokens, targets=pieces.targets)


def cut_long(starts: Ints, block: Block, room: int) -> Ints:
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
