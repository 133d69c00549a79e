"""Accuracy with its uncertainty, and accuracy on minimal pairs.

    >>> round(accuracy(right=80, total=100).low, 4)
    0.7112

The interval is Wilson's (1927) score interval: it stays within 0 and 1 and holds its coverage for few answers and for
shares near the ends, where the usual p ± 1.96 √(p(1 − p)/n) does not.

Exact binomial intervals (Clopper & Pearson 1934): all shares under which the observed count is not too rare.

    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)

They never cover less than their level, also for counts of 0 and 1, where Wilson's interval may.

Minimal pairs (BLiMP, Warstadt et al. 2020): how often the model prefers the good sentence. A tie is no preference: it
counts as wrong, and the number of ties is reported.

    >>> right = preferred([-3.0, -5.0, -4.0], [-4.0, -4.0, -4.0])
    >>> [bool(pair) for pair in right]
    [True, False, False]
    >>> by_group(right, ["agreement", "agreement", "islands"])["agreement"].share
    0.5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Bools
from larvatus.core.tables import Tabular

Z = 1.959963984540054
"""Quantile of the normal distribution for 95%."""


@dataclass(frozen=True)
class Accuracy:
    right: int
    total: int
    share: float
    low: float
    high: float
    """95% interval."""


def accuracy(*, right: int, total: int) -> Accuracy:
    low, high = wilson(right, total)
    return Accuracy(right=right, total=total, share=right / total, low=low, high=high)


def wilson(right: float, total: float, z: float = Z) -> tuple[float, float]:
    """The interval of all shares p under which `right` of `total` is within z standard errors of p."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total} is no share")
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))  # against rounding errors


def clustered_interval(shares: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """Wilson's interval of a mean of shares where those of one cluster are not independent, such as of one sentence.

    The number of answers is divided by the design effect (Kish 1965): the variance of the mean over clusters, relative
    to that of independent answers. A design effect below 1 counts as 1.

    >>> low, high = clustered_interval([1, 1, 0, 0] * 25, [k // 2 for k in range(100)])      # two answers, always equal
    >>> wilson(25, 50) == (low, high)
    True
    """
    values = np.asarray(shares, dtype=np.float64)
    numbers: dict[Hashable, int] = {}
    owners = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)
    total, mean = len(values), float(values.mean())
    sums = np.bincount(owners, weights=values - mean)
    spread = mean * (1 - mean) * total
    effect = max(1.0, float((sums**2).sum()) / spread) if spread > 0 else 1.0
    return wilson(mean * total / effect, total / effect)


_HALVINGS = 60  # of an interval of length 1: below the precision of a double


def clopper_pearson(right: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of the share, if `right` of `total` were observed."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total} is no share")
    tail = (1 - level) / 2
    fewer, as_many = binomial_cdf(right - 1, total), binomial_cdf(right, total)
    low = 0.0 if right == 0 else _crossing(lambda share: 1 - fewer(share), tail)
    high = 1.0 if right == total else _crossing(lambda share: -as_many(share), -tail)
    return low, high


def binomial_cdf(count: int, total: int) -> Callable[[float], float]:
    """P(X ≤ count) of a binomial variable, as a function of the share.

    >>> round(binomial_cdf(1, 4)(0.5), 4)
    0.3125
    """
    counts = np.arange(count + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    ways = factorials[total] - factorials[counts] - factorials[total - counts]

    def probability(share: float) -> float:
        if share <= 0.0 or count >= total:
            return 1.0
        if share >= 1.0:
            return 0.0
        logs = ways + counts * math.log(share) + (total - counts) * math.log1p(-share)
        return min(1.0, float(np.exp(logs).sum()))

    return probability


def _crossing(rising: Callable[[float], float], goal: float) -> float:
    """The share at which a rising function reaches the goal."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return (low + high) / 2


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
    """Accuracy of each group, in the order of first occurrence; pairs without a group are in none."""
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
