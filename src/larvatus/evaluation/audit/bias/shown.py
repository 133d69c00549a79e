"""Figures of the bias audit for people: a share with its interval, a difference with its interval, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.metrics.bootstrap import Interval, bootstrap
from larvatus.metrics.clusters import cluster_bootstrap, crossed_mean, mean_of_sums, mean_rows


@dataclass(frozen=True)
class Resampling:
    """How intervals are found."""

    samples: int = 1000
    seed: int = 0

    def mean(self, values: npt.ArrayLike, *, scale: float = 1.0) -> Interval:
        """The mean of what each example has, times a scale (100 for per cent), with its 95% interval."""
        return self.of_sums(mean_rows(values, scale=scale), mean_of_sums)

    def cluster_mean(
        self, values: npt.ArrayLike, clusters: npt.NDArray[Any], *, strata: npt.NDArray[Any], scale: float = 1.0
    ) -> Interval:
        """The same with clusters resampled within strata; NaN ends where a stratum has one cluster."""
        rows = mean_rows(values, scale=scale)
        return cluster_bootstrap(rows, mean_of_sums, clusters, strata=strata, samples=self.samples, seed=self.seed)

    def crossed_mean(self, table: npt.ArrayLike) -> Interval:
        """Mean of a table whose rows and columns are resampled, each by itself."""
        return crossed_mean(table, samples=self.samples, seed=self.seed)

    def of_sums(self, rows: npt.ArrayLike, score: Callable[[npt.NDArray[np.float64]], npt.ArrayLike]) -> Interval:
        """Of one example, which any sample would draw again, the interval is not known: NaN."""
        interval = bootstrap(rows, score, samples=self.samples, seed=self.seed)
        if len(np.asarray(rows)) > 1:
            return interval
        return replace(interval, low=math.nan, high=math.nan, deviation=math.nan)


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def percent(interval: Interval) -> tuple[str, str]:
    """
    >>> percent(Interval(57.25, 54.8, 59.94, 1.3, 1000))
    ('57.2', '54.8 to 59.9')
    >>> percent(Interval(100.0, math.nan, math.nan, math.nan, 1000))
    ('100.0', '–')
    """
    return f"{interval.value:.1f}", span(interval, ".1f")


def number(interval: Interval) -> tuple[str, str]:
    """
    >>> number(Interval(-0.1234, -0.2, 0.01, 0.1, 1000))
    ('-0.123', '-0.200 to +0.010')
    """
    return f"{interval.value:+.3f}", span(interval, "+.3f")


def span(interval: Interval, form: str) -> str:
    """One example has no interval, not one of no width."""
    return "–" if math.isnan(interval.low) else f"{interval.low:{form}} to {interval.high:{form}}"
