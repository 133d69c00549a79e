"""Which ending of each example is right: what a head for multiple choice learns from.

ChoiceTargets(windows=np.array([1, 1, 2]), endings=np.array([3]), labels=np.array([2]))     # the third, in two windows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic

import numpy as np

from larvatus.core.arrays import Ints, Mapped
from larvatus.core.batch import A, edges


@dataclass(frozen=True, eq=False)
class ChoiceTargets(Mapped, Generic[A]):
    """E examples of P endings in all; an ending is one sequence, or several where it is long with its context."""

    what: ClassVar[str] = "right endings"
    windows: A  # [P] sequences of each ending
    endings: A  # [E] endings of each example
    labels: A  # [E] the right one, from 0; −100 where nobody knows

    @property
    def count(self) -> int:
        return len(self.labels)  # type: ignore[arg-type]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> ChoiceTargets[A]:
        first, last = np.searchsorted(edges(self.windows), sequences).tolist()  # type: ignore[arg-type]
        examples = slice(*np.searchsorted(edges(self.endings), (first, last)).tolist())  # type: ignore[arg-type]
        return ChoiceTargets(
            windows=self.windows[first:last],  # type: ignore[index]
            endings=self.endings[examples],  # type: ignore[index]
            labels=self.labels[examples],  # type: ignore[index]
        )

    @classmethod
    def join(cls, parts: Sequence[tuple[ChoiceTargets[Ints], int, int]]) -> ChoiceTargets[Ints]:
        return ChoiceTargets(
            windows=np.concatenate([part.windows for part, _, _ in parts]),
            endings=np.concatenate([part.endings for part, _, _ in parts]),
            labels=np.concatenate([part.labels for part, _, _ in parts]),
        )
