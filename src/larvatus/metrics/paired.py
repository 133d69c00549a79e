"""Are two systems different, judged on the same examples?

    paired_bootstrap    interval of the difference, and a p-value (Efron & Tibshirani 1993; Koehn 2004)
    randomisation       approximate randomisation (Noreen 1989): answers of the two are swapped at random
    mcnemar             exact, for accuracies: only examples that exactly one gets right count (McNemar 1947)

    >>> round(mcnemar([True] * 10 + [False] * 2, [False] * 8 + [True] * 4), 4)
    0.1094

Rows and scores are those of `bootstrap`: any score of sums of rows or of the rows themselves. Differences are the
second system's score minus the first's; p-values are two-sided and never 0: (k + 1) / (samples + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.metrics.intervals import Of, Score, as_rows, bootstrap_scores, percentiles, score_of_all, weighted_sums

ROUNDING = 1e-12
"""Differences closer than this are equal."""


@dataclass(frozen=True)
class PairedDifference:
    first: float
    second: float
    difference: float
    """Second minus first."""
    p: float
    """How often chance gives a difference as large, in either direction."""
    samples: int
    low: float | None = None
    """95% interval of the difference, by the bootstrap only."""
    high: float | None = None


def paired_bootstrap(
    first: npt.ArrayLike, second: npt.ArrayLike, score: Score, *, of: Of = "sums", samples: int = 1000, seed: int = 0
) -> PairedDifference:
    """p: how often a resampled difference is as far from the observed one as that is from 0."""
    a, b = _both(first, second)
    differences = bootstrap_scores(b, score, of=of, samples=samples, seed=seed)
    differences = differences - bootstrap_scores(a, score, of=of, samples=samples, seed=seed)  # of the same examples
    ours, theirs = score_of_all(a, score, of), score_of_all(b, score, of)
    observed = theirs - ours
    low, high = percentiles(differences, 0.95)
    return PairedDifference(ours, theirs, observed, _p(differences - observed, observed), samples, low, high)


def randomisation(
    first: npt.ArrayLike, second: npt.ArrayLike, score: Score, *, of: Of = "sums", samples: int = 1000, seed: int = 0
) -> PairedDifference:
    """p: how often two systems made of these answers by chance differ as much."""
    a, b = _both(first, second)

    def tosses(item: int) -> npt.NDArray[np.bool_]:
        return stream(seed, "randomisation", 0, item).integers(0, 2, len(a), dtype=np.int8).astype(np.bool_)

    if of == "sums":
        total_a, total_b = a.sum(0), b.sum(0)
        differences = np.concatenate(
            [
                np.asarray(score(total_b - moved)) - np.asarray(score(total_a + moved))
                for moved in weighted_sums(b - a, tosses, samples=samples)
            ]
        )
    else:
        differences = np.empty(samples)
        for item in range(samples):
            swapped = tosses(item).reshape(-1, *[1] * (a.ndim - 1))
            differences[item] = float(score(np.where(swapped, a, b))) - float(score(np.where(swapped, b, a)))
    ours, theirs = score_of_all(a, score, of), score_of_all(b, score, of)
    return PairedDifference(ours, theirs, theirs - ours, _p(differences, theirs - ours), samples)


def _both(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    a, b = as_rows(first), as_rows(second)
    if a.shape != b.shape:
        raise DataError(f"two systems are compared on the same examples, not on {a.shape} and {b.shape}")
    return a, b


def _p(differences: Doubles, observed: float) -> float:
    differences = differences[~np.isnan(differences)]
    as_large = int((np.abs(differences) >= abs(observed) - ROUNDING).sum())
    return (as_large + 1) / (len(differences) + 1)


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Exact two-sided p-value from whether each system is right on each example; 1 if they never differ."""
    a, b = np.asarray(first, np.bool_), np.asarray(second, np.bool_)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"two systems are compared on the same examples, not on {a.shape} and {b.shape}")
    only_a, only_b = int((a & ~b).sum()), int((~a & b).sum())
    count = only_a + only_b
    ways, term = 0, 1  # whole numbers: no rounding before the division
    for k in range(min(only_a, only_b) + 1):
        ways += term
        term = term * (count - k) // (k + 1)
    return min(1.0, float(2 * ways / (1 << count)))
