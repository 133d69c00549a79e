"""Resampling of the bias audit, and how its figures are printed."""

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
    """Number of samples and seed of the bootstrap."""

    samples: int = 1000
    seed: int = 0

    def mean(self, values: npt.ArrayLike, *, scale: float = 1.0) -> Interval:
        """The mean over examples times a scale (100 for per cent), with its 95% interval."""
        return self.of_sums(mean_rows(values, scale=scale), mean_of_sums)

    def cluster_mean(
        self, values: npt.ArrayLike, clusters: npt.NDArray[Any], *, strata: npt.NDArray[Any], scale: float = 1.0
    ) -> Interval:
        """The mean with clusters resampled within strata; the ends are NaN if a stratum has one cluster."""
        rows = mean_rows(values, scale=scale)
        return cluster_bootstrap(rows, mean_of_sums, clusters, strata=strata, samples=self.samples, seed=self.seed)

    def crossed_mean(self, table: npt.ArrayLike) -> Interval:
        """The mean of a table whose rows and columns are resampled independently."""
        return crossed_mean(table, samples=self.samples, seed=self.seed)

    def of_sums(self, rows: npt.ArrayLike, score: Callable[[npt.NDArray[np.float64]], npt.ArrayLike]) -> Interval:
        """A score of sums with its interval; the ends are NaN for a single example."""
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
    """The interval as text; a dash for a single example."""
    return "–" if math.isnan(interval.low) else f"{interval.low:{form}} to {interval.high:{form}}"
