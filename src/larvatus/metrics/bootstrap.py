"""Percentile bootstrap (Efron 1979): how far a score would move on another sample of examples.

    >>> rows = np.array([1.0] * 80 + [0.0] * 20)[:, None]                # right or wrong: accuracy is a mean of rows
    >>> accuracy = bootstrap(rows, lambda sums: sums[..., 0] / 100)
    >>> accuracy.value, 0.70 < accuracy.low < 0.74, 0.86 < accuracy.high < 0.90
    (0.8, True, True)

Examples are sampled with replacement, as many as there are. What each adds to the score is a row. A score of sums of
rows (accuracy, F1, Matthews: see `tasks/evaluation/resampling.py`) is computed for all samples at once, any other (a
rank correlation) sample by sample from the sampled rows, with `of="rows"`. Sample r is a function of the seed and r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
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
