"""Intervals of scores (bootstrap, Efron 1979; Student's t), and whether two systems differ on the same examples.

    >>> rows = np.array([1.0] * 80 + [0.0] * 20)[:, None]                # right or wrong: accuracy is a mean of rows
    >>> accuracy = bootstrap(rows, lambda sums: sums[..., 0] / 100)
    >>> accuracy.value, 0.70 < accuracy.low < 0.74, 0.86 < accuracy.high < 0.90
    (0.8, True, True)
    >>> tuple(round(end, 3) for end in mean_interval([0.8, 0.9, 0.85]))       # a few repetitions: mean ± t s / √n
    (0.726, 0.974)
    >>> values, jobs = np.repeat([0.0, 1.0, 2.0, 3.0], 25), np.repeat(["cook", "clerk", "guard", "nurse"], 25)
    >>> by_job = cluster_bootstrap(mean_rows(values), mean_of_sums, jobs)
    >>> by_row = cluster_bootstrap(mean_rows(values), mean_of_sums, np.arange(100))
    >>> by_job.high - by_job.low > 4 * (by_row.high - by_row.low)         # 100 rows, but only four occupations
    True
    >>> round(mcnemar([True] * 10 + [False] * 2, [False] * 8 + [True] * 4), 4)
    0.1094

**Percentile bootstrap**: how far a score would move on another sample of examples. Examples are sampled with
replacement, as many as there are. What each adds to the score is a row. A score of sums of rows (accuracy, F1,
Matthews: see `tasks/evaluation/resampling.py`) is computed for all samples at once, any other (a rank correlation)
sample by sample from the sampled rows, with `of="rows"`. Sample r is a function of the seed and r.

**Clusters** of examples are resampled as a whole (Davison & Hinkley 1997). Rows of one cluster share more than rows of
two (the sentences about one occupation), so the number of rows overstates the evidence. Strata that a set fixes (20
occupations of each stereotype) are resampled separately. A table of two crossed factors (sentences × words) has each
factor resampled by itself, and a cell counts as often as its row times its column: the pigeonhole bootstrap (Owen
2007), which is conservative if cells differ more than rows and columns.

Few clusters make the percentile interval too narrow: its samples have the variance (n − 1) / n of what they should,
and normal rather than t tails. Quantiles are taken further out for both (Hesterberg 2015, the expanded percentile),
from as many more samples as leave the tails what those of 95% would hold.

**Two systems** on the same examples. Differences are the second system's score minus the first's; p-values are
two-sided and never 0: (k + 1) / (samples + 1).

    paired_bootstrap    interval of the difference, and a p-value (Efron & Tibshirani 1993; Koehn 2004)
    randomisation       approximate randomisation (Noreen 1989): answers of the two are swapped at random
    mcnemar             exact, for accuracies: only examples that exactly one gets right count (McNemar 1947)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream

Score = Callable[[Doubles], Any]
"""Function of sums, […, *row] → […], or of rows, [n, *row] → a number."""
Of = Literal["sums", "rows"]
CHUNK = 4_000_000
"""Numbers in one table of weights."""
KEPT = 1_000_000
"""Numbers in a table of samples that is kept for the next score of as many examples."""


@dataclass(frozen=True)
class Interval:
    value: float
    """Score of the examples themselves."""
    low: float
    high: float
    deviation: float
    """Standard deviation over samples."""
    samples: int


def bootstrap(
    rows: npt.ArrayLike, score: Score, *, of: Of = "sums", samples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of a score of the rows [n, …]. Samples whose score is not defined (NaN) are left out."""
    table = as_rows(rows)
    if not 0.0 < level < 1.0 or samples < 2:
        raise UsageError(f"an interval needs 2 or more samples and a level between 0 and 1, not {samples} and {level}")
    resampled = bootstrap_scores(table, score, of=of, samples=samples, seed=seed)
    return percentile_interval(score_of_all(table, score, of), resampled, level)


def percentile_interval(value: float, scores: Doubles, level: float) -> Interval:
    """The interval of a score, from the scores of the samples."""
    low, high = percentiles(scores, level)
    known = scores[~np.isnan(scores)]
    return Interval(value, low, high, float(known.std(ddof=1)) if len(known) > 1 else np.nan, len(scores))


def as_rows(rows: npt.ArrayLike) -> Doubles:
    table = np.asarray(rows, np.float64)
    if table.ndim == 0 or not len(table):
        raise DataError("there are no examples to resample")
    return table


def score_of_all(rows: Doubles, score: Score, of: Of) -> float:
    return float(score(rows.sum(0) if of == "sums" else rows))


def bootstrap_scores(rows: Doubles, score: Score, *, of: Of, samples: int, seed: int) -> Doubles:
    """[samples] scores. Rows of two systems side by side are sampled together."""
    count = len(rows)
    if of == "rows":
        return np.array([float(score(rows[_drawn(count, seed, item)])) for item in range(samples)])

    table = _all_times(count, seed, samples) if count * samples <= KEPT else None

    def times(item: int) -> npt.NDArray[Any]:
        return _times(count, seed, item) if table is None else table[item]

    return np.concatenate([np.asarray(score(sums)) for sums in weighted_sums(rows, times, samples=samples)])


def weighted_sums(rows: Doubles, weights: Callable[[int], npt.NDArray[Any]], *, samples: int) -> Iterator[Doubles]:
    """Σ_n w_rn · row_n of the samples r, some at a time: [R, *row]."""
    flat = rows.reshape(len(rows), -1)
    step = max(1, CHUNK // len(rows))
    for begin in range(0, samples, step):
        chunk = np.stack([weights(item) for item in range(begin, min(begin + step, samples))])
        yield (chunk.astype(np.float64) @ flat).reshape(len(chunk), *rows.shape[1:])


def percentiles(scores: Doubles, level: float) -> tuple[float, float]:
    """The percentiles that enclose the middle of the known scores."""
    known = scores[~np.isnan(scores)]
    if not len(known):
        return np.nan, np.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _drawn(count: int, seed: int, item: int) -> npt.NDArray[np.int64]:
    return stream(seed, "bootstrap", 0, item).integers(0, count, count)


def _times(count: int, seed: int, item: int) -> npt.NDArray[np.int64]:
    """[count] how often each example is in a sample."""
    return np.bincount(_drawn(count, seed, item), minlength=count)


@lru_cache(maxsize=4)
def _all_times(count: int, seed: int, samples: int) -> npt.NDArray[np.int32]:
    """[samples, count] for all samples: the scores of one set share them."""
    times = np.array([_times(count, seed, item) for item in range(samples)], np.int32)
    times.flags.writeable = False
    return times


# Student's t.

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


# Clusters.

MAX_GROWTH = 20
"""Factor by which samples may grow."""


def mean_rows(values: npt.ArrayLike, *, scale: float = 1.0) -> Doubles:
    """[n, 2] value times a scale, and 1: their sums give a mean (`mean_of_sums`)."""
    numbers = np.asarray(values, np.float64)
    return np.stack([scale * numbers, np.ones(numbers.shape)], axis=-1)


def mean_of_sums(sums: Doubles) -> Doubles:
    mean: Doubles = sums[..., 0] / sums[..., 1]
    return mean


def cluster_bootstrap(
    rows: npt.ArrayLike,
    score: Score,
    clusters: Sequence[Any] | npt.NDArray[Any],
    *,
    strata: Sequence[Any] | npt.NDArray[Any] | None = None,
    of: Of = "sums",
    samples: int = 1000,
    seed: int = 0,
) -> Interval:
    """95% interval of a score of the rows [n, …], clusters resampled within each stratum.

    A stratum of one cluster gives no idea of how clusters differ: both ends are then NaN.
    """
    table = as_rows(rows)
    cluster_of, stratum_of = _codes(clusters, strata, len(table))
    value = score_of_all(table, score, of)
    sizes = np.bincount(stratum_of)
    if sizes.min() < 2:
        return Interval(value, math.nan, math.nan, math.nan, samples)
    level = expanded_level(len(stratum_of) / len(sizes), len(stratum_of) - len(sizes))
    samples = _enough(samples, level)
    counts = _counts(stratum_of, samples, stream(seed, "cluster bootstrap"))
    if of == "sums":
        sums = np.zeros((len(stratum_of), *table.shape[1:]))
        np.add.at(sums, cluster_of, table)
        parts = weighted_sums(sums, lambda item: counts[item], samples=samples)
        scores = np.concatenate([np.asarray(score(part), np.float64) for part in parts])
    else:
        scores = np.array([float(score(np.repeat(table, counts[item][cluster_of], axis=0))) for item in range(samples)])
    return percentile_interval(value, scores, level)


def crossed_mean(table: npt.ArrayLike, *, samples: int = 1000, seed: int = 0) -> Interval:
    """95% interval of the mean of a table [rows, columns]; a factor of one level is fixed, not resampled."""
    cells = np.asarray(table, np.float64)
    if cells.ndim != 2 or not cells.size:
        raise DataError(f"two crossed factors are a table of two dimensions, not {cells.shape}")
    value = float(cells.mean())
    levels = [size for size in cells.shape if size > 1]
    if not levels:
        return Interval(value, math.nan, math.nan, math.nan, samples)
    level = expanded_level(min(levels), min(levels) - 1)
    samples, random = _enough(samples, level), stream(seed, "crossed bootstrap")
    by_row, by_column = (_counts(np.zeros(size, np.int64), samples, random) for size in cells.shape)
    scores = ((by_row @ cells) * by_column).sum(1) / cells.size
    return percentile_interval(value, scores, level)


def expanded_level(clusters: float, degrees: int, level: float = 0.95) -> float:
    """Level of the percentile interval that has about the requested coverage with this many clusters.

    >>> round(expanded_level(20, 38), 3), round(expanded_level(6, 5), 3), round(expanded_level(10_000, 9_999), 3)
    (0.962, 0.995, 0.95)
    """
    reach = math.sqrt(clusters / (clusters - 1)) * t_quantile(level, degrees)
    return 2 * NormalDist().cdf(reach) - 1


def _enough(samples: int, level: float) -> int:
    """Samples whose tails beyond this level are as large as those beyond 95% of the requested samples."""
    return math.ceil(samples * min(MAX_GROWTH, (1 - 0.95) / (1 - level))) if level < 1 else MAX_GROWTH * samples


def _codes(clusters: Any, strata: Any, rows: int) -> tuple[Ints, Ints]:
    """[rows] number of the cluster of each, and [clusters] number of the stratum of each."""
    labels, layers = np.asarray(clusters), np.zeros(rows, np.int64) if strata is None else np.asarray(strata)
    if labels.shape != (rows,) or layers.shape != (rows,):
        raise DataError(f"every one of {rows} rows has a cluster and a stratum; got {labels.shape} and {layers.shape}")
    layer_of = np.unique(layers, return_inverse=True)[1]
    label_of = np.unique(labels, return_inverse=True)[1]
    pairs, cluster_of = np.unique(np.stack([layer_of, label_of]), axis=1, return_inverse=True)
    return cluster_of.reshape(-1), pairs[0]


def _counts(stratum_of: Ints, samples: int, random: np.random.Generator) -> Ints:
    """[samples, clusters] how often each cluster is sampled: as many of each stratum as it has."""
    counts = np.zeros((samples, len(stratum_of)), np.int64)
    for stratum in range(int(stratum_of.max()) + 1):
        (members,) = np.nonzero(stratum_of == stratum)
        sampled = members[random.integers(0, len(members), (samples, len(members)))]
        np.add.at(counts, (np.arange(samples)[:, None], sampled), 1)
    return counts


# Two systems.

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
