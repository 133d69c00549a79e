"""Student's interval of a mean over a few repetitions: mean ± t s / √n.

>>> tuple(round(end, 3) for end in mean_interval([0.8, 0.9, 0.85]))
(0.726, 0.974)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
        2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""The 97.5% quantile of Student's t for 1, 2, … degrees of freedom; above, the normal's is near."""
NORMAL_95 = 1.960


def t_95(count: int) -> float:
    """The quantile for the mean of `count` values.

    >>> t_95(3), t_95(1000)
    (4.303, 1.96)
    """
    return T_95[count - 2] if count <= len(T_95) + 1 else NORMAL_95


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean; NaN for a single value, which says nothing of its spread."""
    if len(values) < 2:
        return math.nan, math.nan
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = t_95(len(values)) * deviation / math.sqrt(len(values))
    return mean - half, mean + half
