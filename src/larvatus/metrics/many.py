"""Many systems compared with one, on the same examples: intervals, p-values, and corrections for their number.

    holm                   no false discovery at all, with probability 1 − α (Holm 1979)
    benjamini_hochberg     at most a share α of the discoveries is false, on average (Benjamini & Hochberg 1995)

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]

`differences` compares all systems in the same resamples: 95% intervals by the paired bootstrap, p by approximate
randomisation, as in `intervals.py`. A p-value is at least 1 / (samples + 1), so there are more samples of randomisation
the more systems there are: otherwise no correction could ever leave one significant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.rng import stream
from larvatus.metrics.intervals import CHUNK, ROUNDING, Score, as_rows, bootstrap_scores, percentiles, weighted_sums

Correction = Literal["holm", "bh"]
AT_LEAST = 10_000
"""Samples of the randomisation test,"""
PER_SYSTEM = 100
"""and this many for each score of each system."""
NUMBERS = 1 << 24
"""Sums that are held at once."""


def holm(p: npt.ArrayLike) -> Doubles:
    """p-values adjusted by Holm's step-down procedure."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate((len(values) - np.arange(len(values))) * values[order])
    return _restored(np.minimum(steps, 1.0), order)


def benjamini_hochberg(p: npt.ArrayLike) -> Doubles:
    """p-values adjusted for the false discovery rate."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    steps = len(values) / np.arange(1, len(values) + 1) * values[order]
    return _restored(np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0), order)


def _restored(steps: Doubles, order: npt.NDArray[np.intp]) -> Doubles:
    adjusted = np.empty_like(steps)
    adjusted[order] = steps
    return adjusted


def adjusted(p: npt.ArrayLike, correction: Correction) -> Doubles:
    """p-values by the correction of this name."""
    if correction not in get_args(Correction):
        raise UsageError(
            f"{correction!r} is not a correction{did_you_mean(str(correction), get_args(Correction))}: holm or bh"
        )
    return holm(p) if correction == "holm" else benjamini_hochberg(p)


@dataclass(frozen=True, eq=False)
class Differences:
    """Scores of C systems less those of the one they are compared with; […] if a system has several scores."""

    score: Doubles
    """[…] of that one."""
    change: Doubles
    """[C, …]"""
    low: Doubles
    high: Doubles
    """[C, …] 95% interval of the change."""
    p: Doubles
    """[C, …]"""


def differences(
    first: npt.ArrayLike, others: npt.ArrayLike, score: Score, *, samples: int = 1000, seed: int = 0
) -> Differences:
    """Compare systems by scores of sums of rows: `first` [n, …] is one system's, `others` [n, C, …] those of C."""
    a, b = as_rows(first), as_rows(others)
    whole = np.asarray(score(a.sum(0)), np.float64)
    tests = max(AT_LEAST, PER_SYSTEM * b.shape[1] * whole.size)
    slab = max(1, NUMBERS // (a[0].size * min(tests, max(samples, CHUNK // len(a)))))
    parts = [
        _compared(a, b[:, start : start + slab], score, samples=samples, tests=tests, seed=seed)
        for start in range(0, b.shape[1], slab)
    ]
    return Differences(whole, *(np.concatenate(each) for each in zip(*parts, strict=True)))


def _compared(
    a: Doubles, b: Doubles, score: Score, *, samples: int, tests: int, seed: int
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Change, both ends of its interval, and p."""
    observed = np.asarray(score(b.sum(0))) - np.asarray(score(a.sum(0)))
    changes = bootstrap_scores(b, score, of="sums", samples=samples, seed=seed)
    changes = changes - bootstrap_scores(a, score, of="sums", samples=samples, seed=seed)[:, None]
    ends = np.array([percentiles(column, 0.95) for column in changes.reshape(samples, -1).T])
    low, high = ends.T.reshape(2, *observed.shape)

    def tosses(item: int) -> npt.NDArray[np.bool_]:
        return stream(seed, "randomisation", 0, item).integers(0, 2, len(a), dtype=np.int8).astype(np.bool_)

    larger, total_a, total_b = np.zeros(observed.shape), a.sum(0), b.sum(0)
    for moved in weighted_sums(b - a[:, None], tosses, samples=tests):
        chance = np.asarray(score(total_b - moved)) - np.asarray(score(total_a + moved))
        larger += (np.abs(chance) >= np.abs(observed) - ROUNDING).sum(0)
    return observed, low, high, (larger + 1) / (tests + 1)
