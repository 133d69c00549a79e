"""A measure of all contestants of a comparison, as mean and deviation over seeds: a row of its table.

>>> Value.of([0.5, 0.7]).mean
0.6
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal["count", "number", "share"]
Better = Literal["lower", "higher"] | None


class Value(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mean: float
    deviation: float | None = None
    """Standard deviation over seeds (n − 1); none of a single seed."""
    low: float | None = None
    """End of the 95% interval over examples, where labelled examples were scored; so is `high`."""
    high: float | None = None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Value | None:
        if not numbers:
            return None
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        return cls(mean=statistics.fmean(numbers), deviation=deviation)


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measure of all contestants."""

    name: str
    group: str
    kind: Kind
    """How to print it."""
    better: Better = None
    """Where the best may be marked: only where numbers compare."""
    values: dict[str, Value | None]

    @property
    def best(self) -> set[str]:
        """Whose mean is best; nobody's where there is nothing to compare."""
        means = {label: value.mean for label, value in self.values.items() if value and not math.isnan(value.mean)}
        if self.better is None or len(means) < 2:
            return set()
        best = min(means.values()) if self.better == "lower" else max(means.values())
        return {label for label, mean in means.items() if mean == best}
