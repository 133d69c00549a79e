"""Pairs of texts in lists that no step separates: a context with its endings, a query with its passages.

    data.pairs_of(np.array([3, 0]))          # the pairs of two lists, in their order
    data.batch(np.array([3, 0]))             # their sequences; those of a list are one group

A pair longer than the window is several sequences. P pairs, E lists.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.tasks.encoding.sequences import Sequences, run_indices


@dataclass(frozen=True, eq=False)
class PairLists(ABC):
    """P pairs in E lists."""

    sequences: Sequences
    """Sequences of the pairs; those of a list follow each other."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """[E] pairs of each list."""

    @abstractmethod
    def targets(self, examples: Ints) -> Any:
        """The targets of some lists, with the `windows` of their pairs."""

    def __len__(self) -> int:
        return len(self.sizes)

    def pairs_of(self, examples: Ints) -> Ints:
        """The pairs of some lists, in their order."""
        chosen = np.asarray(examples, np.int64)
        return run_indices(edges(self.sizes)[:-1][chosen], self.sizes[chosen])

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        targets = self.targets(examples)
        tokens = self.sequences.batch(self.sequences.of(self.pairs_of(examples)))
        groups = np.add.reduceat(targets.windows, edges(self.sizes[examples])[:-1]) if len(examples) else None
        return TrainingBatch(tokens=dataclasses.replace(tokens, groups=groups), targets={type(targets): targets})
