"""Accuracy on minimal pairs (BLiMP, Warstadt et al. 2020): how often the model prefers the good sentence.

    >>> right = preferred([-3.0, -5.0, -4.0], [-4.0, -4.0, -4.0])
    >>> [bool(pair) for pair in right]
    [True, False, False]
    >>> by_group(right, ["agreement", "agreement", "islands"])["agreement"].share
    0.5

A tie is no preference: it counts as wrong, and how many there are is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Bools
from larvatus.core.tabular import Tabular
from larvatus.metrics.accuracy import Accuracy, accuracy


@dataclass(frozen=True)
class PairAccuracies(Tabular):
    """`by` maps what pairs are sorted by (`UID`, `field`) to the accuracy of each of its groups."""

    overall: Accuracy
    by: dict[str, dict[str, Accuracy]]
    ties: int

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each group, the one of all pairs first."""
        groups = [("overall", "all", self.overall)]
        groups += [(by, group, each) for by, shares in self.by.items() for group, each in shares.items()]
        return [{"by": by, "group": group, **asdict(each)} for by, group, each in groups]


def preferred(good: Sequence[float], bad: Sequence[float]) -> Bools:
    """[pairs] whether the good sentence has the higher score."""
    better: Bools = np.asarray(good, dtype=np.float64) > np.asarray(bad, dtype=np.float64)
    return better


def by_group(right: Bools, groups: Sequence[str | None]) -> dict[str, Accuracy]:
    """Accuracy of each group, in the order in which they first come; pairs without a group are in none."""
    counts: dict[str, list[int]] = {}
    for is_right, group in zip(right.tolist(), groups, strict=True):
        if group is not None:
            count = counts.setdefault(group, [0, 0])
            count[0] += is_right
            count[1] += 1
    return {group: accuracy(right=right, total=total) for group, (right, total) in counts.items()}


def pair_accuracies(
    good: Sequence[float], bad: Sequence[float], groups: Mapping[str, Sequence[str | None]]
) -> PairAccuracies:
    """Overall, and by every way of grouping that has any groups."""
    right = preferred(good, bad)
    ties = int((np.asarray(good) == np.asarray(bad)).sum())
    by = {name: shares for name, labels in groups.items() if (shares := by_group(right, labels))}
    return PairAccuracies(overall=accuracy(right=int(right.sum()), total=len(right)), by=by, ties=ties)
