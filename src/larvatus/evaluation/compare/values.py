"""Rows of a comparison's table: one metric of all candidates, each as mean and deviation over seeds.

>>> SeedMean.of([0.5, 0.7]).mean
0.6
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from larvatus.core.settings import Settings
from larvatus.metrics.student_t import NORMAL_95, t_quantile

Kind = Literal["count", "number", "share"]
Better = Literal["lower", "higher"] | None


class SeedMean(Settings):
    mean: float
    deviation: float | None = None
    """Standard deviation over seeds (n − 1); None for a single seed."""
    low: float | None = None
    """Lower end of the 95% interval over examples or passages, if known; `high` is the upper end."""
    high: float | None = None
    seeds: int = 1

    @classmethod
    def of(cls, numbers: Sequence[float], *, errors: Sequence[float] = ()) -> SeedMean | None:
        """Mean over seeds; `errors` are the standard errors over examples, one per seed."""
        if not numbers:
            return None
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        mean = statistics.fmean(numbers)
        if not errors:
            return cls(mean=mean, deviation=deviation, seeds=len(numbers))
        half = NORMAL_95 * statistics.fmean(errors)
        return cls(mean=mean, deviation=deviation, low=mean - half, high=mean + half, seeds=len(numbers))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The wider of the intervals over seeds and over examples; None if neither is known.

        >>> SeedMean(mean=0.5, low=0.4, high=0.6).interval
        (0.4, 0.6)
        """
        ends = [] if self.low is None or self.high is None else [(self.low, self.high)]
        if self.deviation is not None:
            half = t_quantile(0.95, self.seeds - 1) * self.deviation / math.sqrt(self.seeds)
            ends.append((self.mean - half, self.mean + half))
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


class MetricRow(Settings):
    """One metric of all candidates."""

    name: str
    group: str
    kind: Kind
    """Format of the values."""
    better: Better = None
    """Better direction; None if the values do not compare."""
    values: dict[str, SeedMean | None]

    @property
    def best(self) -> str | None:
        """The best candidate, if its interval overlaps with no other; else None."""
        known = {label: value for label, value in self.values.items() if value and not math.isnan(value.mean)}
        intervals = {label: value.interval for label, value in known.items()}
        if self.better is None or len(known) < 2:
            return None
        sign = -1 if self.better == "lower" else 1
        first, *others = sorted(known, key=lambda label: -sign * known[label].mean)
        ours = intervals[first]
        if ours is None:
            return None
        for label in others:
            theirs = intervals[label]
            if theirs is None or not (ours[0] > theirs[1] if sign > 0 else ours[1] < theirs[0]):
                return None
        return first
