"""Exact binomial intervals (Clopper & Pearson 1934): all shares under which the count seen is not too rare.

    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)

They never cover less than they say, also for counts of 0 and 1, where Wilson's interval (`accuracy.py`) may.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_HALVINGS = 60  # of an interval of length 1: below what a double tells apart


def clopper_pearson(right: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of the share of which `right` of `total` was seen."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total} is no share")
    tail = (1 - level) / 2
    fewer, as_many = at_most(right - 1, total), at_most(right, total)
    low = 0.0 if right == 0 else _crossing(lambda share: 1 - fewer(share), tail)
    high = 1.0 if right == total else _crossing(lambda share: -as_many(share), -tail)
    return low, high


def at_most(count: int, total: int) -> Callable[[float], float]:
    """P(X ≤ count) of a binomial variable, as a function of the share.

    >>> round(at_most(1, 4)(0.5), 4)
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
    """Where a function of a share that rises reaches the goal."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return (low + high) / 2
