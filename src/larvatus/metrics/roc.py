"""How well a score separates two sets: the ROC curve, its area, and true positives at few false ones.

    >>> members, others = np.array([3.0, 2.0, 2.0]), np.array([1.0, 2.0, 0.0])
    >>> round(area(members, others), 4)                       # (3 + 2 + 2 of 3 each, a tie counts half) / 9
    0.8889

The area is the probability that a member has a higher score than another (Hanley & McNeil 1982): 0.5 at chance. An
average hides what matters for privacy, whether *some* members are identified with certainty, so the share of members
above a threshold that hardly any other passes is reported too (Carlini et al. 2022, *Membership inference attacks from
first principles*).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.bootstrap import Interval, percentile_interval

RATES = (0.01, 0.001)
"""False positives at which true ones are counted."""


@dataclass(frozen=True)
class TruePositivesAtRate:
    """Members above the threshold that at most a share `rate` of the others passes."""

    rate: float
    threshold: float | None
    """None if there are too few others for so small a rate: 1,000 for 0.1%."""
    caught: int = 0
    total: int = 0
    share: float | None = None
    low: float | None = None
    high: float | None = None
    """95% interval, exact, at this threshold."""
    false_high: float | None = None
    """Upper end of the 95% interval of the false positives that pass the threshold."""


@dataclass(frozen=True)
class RocCurve:
    """A score on members and others."""

    area: Interval
    caught: tuple[TruePositivesAtRate, ...]
    points: tuple[tuple[float, float], ...]
    """(false positives, true positives), some of them, from (0, 0) to (1, 1)."""

    @property
    def tells(self) -> bool:
        """Whether the interval of the area is above 0.5. One below shows nothing: a rule that was fitted on other folds
        of the same texts falls below 0.5 if there is nothing to learn."""
        return self.area.low > 0.5

    def to_dict(self) -> dict[str, Any]:
        return {
            "auc": self.area.value,
            "low": self.area.low,
            "high": self.area.high,
            "at": [vars(each) for each in self.caught],
            "roc": [list(point) for point in self.points],
        }


def curve(members: Doubles, others: Doubles, *, samples: int = 1000, seed: int = 0) -> RocCurve:
    """Members and others are resampled separately; a percentile interval of the area."""
    if not len(members) or not len(others):
        raise DataError("a ROC curve needs members and others; there are none of one kind")
    interval = percentile_interval(area(members, others), _resampled_areas(members, others, samples, seed), 0.95)
    return RocCurve(interval, tuple(caught(members, others, rate) for rate in RATES), points(members, others))


def _resampled_areas(members: Doubles, others: Doubles, samples: int, seed: int) -> Doubles:
    """The scores are sorted once, for all samples."""
    values, places = np.unique(np.concatenate([members, others]), return_inverse=True)
    of_members, of_others = places[: len(members)], places[len(members) :]
    areas, random = np.empty(samples), stream(seed, "roc bootstrap")
    for sample in range(samples):
        drawn = of_members[random.integers(0, len(members), len(members))]
        counts = np.bincount(of_others[random.integers(0, len(others), len(others))], minlength=len(values))
        below = counts.cumsum() - counts / 2  # ties count half
        areas[sample] = below[drawn].mean() / len(others)
    return areas


def area(members: Doubles, others: Doubles) -> float:
    """P(member above other) + P(tie) / 2, by ranks."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, side="left")
    tied = np.searchsorted(ordered, members, side="right") - below
    return float((below + tied / 2).mean() / len(others))


def caught(members: Doubles, others: Doubles, rate: float) -> TruePositivesAtRate:
    """A score passes if it is above the threshold, not equal to it."""
    allowed = int(rate * len(others) + 1e-9)
    if not allowed:
        return TruePositivesAtRate(rate, None)
    threshold = float(np.sort(others)[::-1][allowed])
    count, total, passed = int((members > threshold).sum()), len(members), int((others > threshold).sum())
    low, high = clopper_pearson(count, total)
    return TruePositivesAtRate(
        rate, threshold, count, total, count / total, low, high, clopper_pearson(passed, len(others))[1]
    )


def points(members: Doubles, others: Doubles, count: int = 200) -> tuple[tuple[float, float], ...]:
    """The curve at `count` thresholds at most, evenly among those where it has a corner."""
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    chosen = thresholds[np.unique(np.linspace(0, len(thresholds) - 1, count).astype(np.int64))]
    true = 1 - np.searchsorted(np.sort(members), chosen, side="left") / len(members)
    false = 1 - np.searchsorted(np.sort(others), chosen, side="left") / len(others)
    return ((0.0, 0.0), *zip(false.tolist(), true.tolist(), strict=True))
