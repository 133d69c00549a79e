"""Where steps begin and end: a row of blocks is cut into runs of whole sequences within a budget, by lengths alone.

for stretches, cursor in cut_steps(blocks, first=0, budget=65_536):
    …                    # the blocks that the step takes from, first and last sequence of each; where the next begins

What one of several ranks reads of a step: its microbatches alone are laid out and corrupted.

    plan = StepPlan(stretches)                                # of the whole step, by lengths alone
    tasks = plan.tasks(16_384, Deal(rank=1, count=4))         # the stretches of blocks that rank 1 of 4 reads
    share = Share(plan, 16_384, deal, batches, read)

All ranks cut the same step into the same microbatches, as many as a multiple of the ranks where there are sequences
enough, and deal them out in turn. Every random choice hangs on the name of a sequence, so a share is, bit by bit, what
the whole step has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from larvatus.core.arrays import Ints, even_runs
from larvatus.core.batch import TrainingBatch, edges
from larvatus.data.corpus.block_maker import BlockMaker, BlockOutline

Content = TypeVar("Content")


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sequence that comes next; all that a resume needs."""

    epoch: int = 0
    block: int = 0
    sequence: int = 0


class LoadedBlock(NamedTuple, Generic[Content]):
    """A block in its place: what it holds, and how long its sequences are."""

    epoch: int
    block: int
    content: Content
    lengths: Ints


class SequenceRange(NamedTuple, Generic[Content]):
    """Sequences first … last − 1 of a block."""

    content: Content
    first: int
    last: int


def cut_steps(
    blocks: Iterator[LoadedBlock[Content]], first: int, budget: int
) -> Iterator[tuple[list[SequenceRange[Content]], Cursor]]:
    """Cut the row of blocks into steps of whole sequences within the budget; a step may take from several blocks."""
    stretches: list[SequenceRange[Content]] = []
    room = budget
    for epoch, block, content, lengths in blocks:
        edge = edges(lengths)
        while first < len(lengths):
            last = int(np.searchsorted(edge, edge[first] + room, side="right")) - 1
            if last > first:
                stretches.append(SequenceRange(content, first, last))
                room -= int(edge[last] - edge[first])
                first = last
            if first < len(lengths):  # the next sequence does not fit: the step is full
                yield stretches, Cursor(epoch, block, first)
                stretches, room = [], budget
        first = 0  # what room is left goes to the next block


Task = list[list[tuple[BlockOutline, int]]]
"""Microbatches, each as stretches of blocks with the place in its block where each begins."""


@dataclass(frozen=True)
class RankAssignment:
    """Which rank this is, of how many."""

    rank: int
    count: int

    def takes(self, item: int) -> bool:
        return item % self.count == self.rank


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A step by its borders: which sequences of which blocks."""

    stretches: Sequence[SequenceRange[BlockOutline]]

    @cached_property
    def lengths(self) -> Ints:
        return np.concatenate([outline.lengths[first:last] for outline, first, last in self.stretches])

    def runs(self, budget: int, count: int) -> list[tuple[int, int]]:
        """The microbatches of the whole step, in sequences."""
        return even_runs(edges(self.lengths), budget, count)

    def tasks(self, budget: int, deal: RankAssignment) -> Task:
        """What a rank reads of it."""
        runs = enumerate(self.runs(budget, deal.count))
        return [list(self._stretches(*run)) for item, run in runs if deal.takes(item)]

    def _stretches(self, first: int, last: int) -> Iterator[tuple[BlockOutline, int]]:
        before = 0
        for outline, begin, end in self.stretches:
            low, high = max(first, before), min(last, before + end - begin)
            if low < high:
                yield outline.cut(begin + low - before, begin + high - before), begin + low - before
            before += end - begin


@dataclass(frozen=True, eq=False)
class RankShare:
    """A step of which one rank has its own microbatches."""

    plan: StepPlan
    microbatch: int
    deal: RankAssignment
    batches: Sequence[TrainingBatch[Ints]]
    """Microbatches of this rank."""
    read: Callable[[Task], Sequence[TrainingBatch[Ints]]]
    """Reads others, where memory ran out and the step is cut again."""

    @property
    def size(self) -> int:
        """Tokens of the whole step."""
        return int(self.plan.lengths.sum())

    def split(self, budget: int, multiple: int) -> list[TrainingBatch[Ints] | None]:
        """The microbatches of the whole step; None in place of those of other ranks."""
        batches = self.batches if budget == self.microbatch else self.read(self.plan.tasks(budget, self.deal))
        items, mine = range(len(self.plan.runs(budget, multiple))), iter(batches)
        return [next(mine) if self.deal.takes(item) else None for item in items]


def read_share(maker: BlockMaker, task: Task) -> list[TrainingBatch[Ints]]:
    """The microbatches of a task."""
    return [TrainingBatch.join([maker.sequences(outline, first) for outline, first in stretches]) for stretches in task]
