"""Shares of right answers with their uncertainty.

    >>> round(accuracy(right=80, total=100).low, 4)
    0.7112

The interval is Wilson's (1927) score interval: it stays within 0 and 1 and holds its coverage for few answers and for
shares near the ends, where the usual p ± 1.96 √(p(1 − p)/n) does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959963984540054
"""Of the normal distribution, for 95%."""


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


def wilson(right: int, total: int, z: float = Z) -> tuple[float, float]:
    """The interval of all shares p under which `right` of `total` lies within z standard errors of p."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total} is no share")
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))  # rounding apart, no change
