"""What one of several ranks reads of a step: its microbatches alone are laid out and corrupted.

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

import numpy as np

from larvatus.core.arrays import Ints, even_runs
from larvatus.core.batch import TrainingBatch, edges
from larvatus.data.corpus.block_maker import BlockMaker, Outline
from larvatus.data.corpus.borders import Stretch

Task = list[list[tuple[Outline, int]]]
"""Microbatches, each as stretches of blocks with the place in its block where each begins."""


@dataclass(frozen=True)
class Deal:
    """Which rank this is, of how many."""

    rank: int
    count: int

    def takes(self, item: int) -> bool:
        return item % self.count == self.rank


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A step by its borders: which sequences of which blocks."""

    stretches: Sequence[Stretch[Outline]]

    @cached_property
    def lengths(self) -> Ints:
        return np.concatenate([outline.lengths[first:last] for outline, first, last in self.stretches])

    def runs(self, budget: int, count: int) -> list[tuple[int, int]]:
        """The microbatches of the whole step, in sequences."""
        return even_runs(edges(self.lengths), budget, count)

    def tasks(self, budget: int, deal: Deal) -> Task:
        """What a rank reads of it."""
        runs = enumerate(self.runs(budget, deal.count))
        return [list(self._stretches(*run)) for item, run in runs if deal.takes(item)]

    def _stretches(self, first: int, last: int) -> Iterator[tuple[Outline, int]]:
        before = 0
        for outline, begin, end in self.stretches:
            low, high = max(first, before), min(last, before + end - begin)
            if low < high:
                yield outline.cut(begin + low - before, begin + high - before), begin + low - before
            before += end - begin


@dataclass(frozen=True, eq=False)
class Share:
    """A step of which one rank has its own microbatches."""

    plan: StepPlan
    microbatch: int
    deal: Deal
    batches: Sequence[TrainingBatch[Ints]]
    """Of this rank."""
    read: Callable[[Task], Sequence[TrainingBatch[Ints]]]
    """Reads others, where memory ran out and the step is cut anew."""

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
