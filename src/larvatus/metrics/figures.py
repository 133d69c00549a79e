"""A figure: one reported number with its interval, and the conditions it holds under.

>>> Figure(metric="accuracy", value=0.91, low=0.88, high=0.94, conditions={"task": "sst2"}).label
'sst2: accuracy'

Results offer their figures by `figures()`. A model card stores them as claims (`models/bundle/claims.py`), which add
what is needed to measure them again: command, settings, data, seed and the checksum of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from larvatus.metrics.intervals import Interval

CONDITIONS = ("task", "length", "language", "category", "group")
"""Conditions that precede the metric in a label. Figures that differ in one of them are different figures."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One reported number."""

    metric: str
    value: float
    low: float | None = None
    """Lower end of the 95% interval, if there is one; `high` is the upper end."""
    high: float | None = None
    unit: str = ""
    """What was resampled for the interval: documents, prompts, occupations."""
    percent: bool = False
    """The value is in per cent or in percentage points."""
    deviation: float | None = None
    """Standard deviation over seeds, if there are several."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What the figure is limited to, such as `category` and `group`."""

    @classmethod
    def of(cls, metric: str, interval: Interval, *, unit: str = "", percent: bool = False, **conditions: Any) -> Figure:
        """A figure from an estimate with its interval."""
        ends = {"low": interval.low, "high": interval.high}
        return cls(metric=metric, value=interval.value, **ends, unit=unit, percent=percent, conditions=conditions)

    @classmethod
    def between(
        cls,
        metric: str,
        value: float,
        ends: tuple[float | None, float | None] = (None, None),
        *,
        unit: str = "",
        **conditions: Any,
    ) -> Figure:
        """A figure from a number and both ends of its interval."""
        return cls(metric=metric, value=value, low=ends[0], high=ends[1], unit=unit, conditions=conditions)

    @property
    def label(self) -> str:
        """The metric after its conditions."""
        return figure_label(self.metric, self.conditions)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval; None if it is not known, as for a single example."""
        if self.low is None or self.high is None or not (math.isfinite(self.low) and math.isfinite(self.high)):
            return None
        return float(self.low), float(self.high)


def figure_label(metric: str, conditions: Mapping[str, Any]) -> str:
    """
    >>> figure_label("masked-lm loss", {"length": 128, "language": "sw"})
    'length 128: sw: masked-lm loss'
    >>> figure_label("accuracy", {"task": "sst2", "conditions": "3 epochs"})
    'sst2: accuracy (3 epochs)'
    """
    given = {name: conditions.get(name) for name in CONDITIONS}
    words = [
        f"length {value}" if name == "length" else str(value) for name, value in given.items() if value is not None
    ]
    remark = conditions.get("conditions")
    return ": ".join([*words, f"{metric} ({remark})" if remark else metric])


def spread_figures(metric: str, values: Sequence[float], conditions: Mapping[str, Any]) -> Iterable[Figure]:
    """The lowest and the highest value over several samples; nothing if there are none."""
    for end, value in (("lowest", min), ("highest", max)) if values else ():
        yield Figure(metric=f"{metric}, {end} of {len(values)} samples", value=value(values), conditions=conditions)
