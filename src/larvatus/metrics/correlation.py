"""Correlations: Pearson's r of values, Spearman's ρ of ranks (ties share their mean rank).

>>> round(spearman([1, 2, 3, 4], [1, 4, 9, 16]), 6)
1.0
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import DataError


def pearson(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """NaN if one side never varies."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise DataError(f"a correlation needs two lists of the same length, 2 or more, not {x.shape} and {y.shape}")
    if (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    return pearson(ranks(a), ranks(b))


def spearman_interval(value: float, pairs: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95% interval of ρ over `pairs` pairs (Bonett & Wright 2000): Fisher's z with variance (1 + ρ²/2) / (n − 3).

    >>> [round(end, 3) for end in spearman_interval(0.7, 2_003)]
    [0.674, 0.724]
    """
    if not math.isfinite(value) or pairs < 4 or abs(value) == 1:
        return math.nan, math.nan
    half = z * math.sqrt((1 + value * value / 2) / (pairs - 3))
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def ranks(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 for the smallest; equal values share the mean of their ranks.

    >>> ranks([10, 30, 10, 20]).tolist()
    [1.5, 4.0, 1.5, 3.0]
    """
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse.reshape(-1)]
    return means
