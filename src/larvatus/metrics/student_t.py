"""Student's t: intervals of a mean over a few repetitions, mean ± t s / √n.

>>> tuple(round(end, 3) for end in mean_interval([0.8, 0.9, 0.85]))
(0.726, 0.974)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

MAX_DEGREES = 1_000
"""Degrees of freedom from which t is treated as normal."""
NORMAL_95 = NormalDist().inv_cdf(0.975)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean; NaN for a single value, which has no spread."""
    if len(values) < 2:
        return math.nan, math.nan
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = t_quantile(0.95, len(values) - 1) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def t_quantile(level: float, degrees: int) -> float:
    """t with P(|T| < t) = level, by bisection; Abramowitz & Stegun 26.7.3 and 26.7.4 give the probability.

    >>> round(t_quantile(0.95, 5), 3), round(t_quantile(0.95, 38), 3)
    (2.571, 2.024)
    """
    if degrees >= MAX_DEGREES:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, math.pi / 2  # of atan(t / √degrees)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
