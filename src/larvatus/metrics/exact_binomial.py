"""Exact binomial intervals (Clopper & Pearson 1934): all shares under which the count seen is not too rare.

    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)

They never cover less than they say, also for counts of 0 and 1, where Wilson's interval (`accuracy.py`) may.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_HALVINGS = 60  # of an interval of length 1: below what a double tells apart


def clopper_pearson(right: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of the share of which `right` of `total` was seen."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total} is no share")
    tail = (1 - level) / 2
    low = 0.0 if right == 0 else _crossing(lambda share: 1 - at_most(right - 1, total, share), tail)
    high = 1.0 if right == total else _crossing(lambda share: -at_most(right, total, share), -tail)
    return low, high


def at_most(count: int, total: int, share: float) -> float:
    """P(X ≤ count) of a binomial variable.

    >>> round(at_most(1, 4, 0.5), 4)
    0.3125
    """
    if share <= 0.0 or count >= total:
        return 1.0
    if share >= 1.0:
        return 0.0
    yes, no, whole = math.log(share), math.log1p(-share), math.lgamma(total + 1)
    terms = (
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * yes + (total - k) * no)
        for k in range(count + 1)
    )
    return min(1.0, math.fsum(terms))


def _crossing(rising: Callable[[float], float], goal: float) -> float:
    """Where a function of a share that rises reaches the goal."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return (low + high) / 2
