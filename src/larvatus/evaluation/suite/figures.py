"""Figures of a suite: the value of one model in one row of the table, and published values of other systems.

    SuiteFigure(id="cola", name="CoLA", measure="Matthews", value=0.31, low=0.26, high=0.36, examples=1_043, by="…")

The 95% interval is over examples. The deviation is over seeds of fine-tuning, if there are several.
"""

from __future__ import annotations

import math
from typing import Any

from larvatus.core.settings import Settings
from larvatus.evaluation.compare.values import Better
from larvatus.metrics.figures import Figure


class SuiteFigure(Settings, omit_defaults=True):
    """One number of one model, as stored in the suite's records."""

    id: str
    """The part's name and a detail: ``blimp``, ``blimp/anaphor_agreement``."""
    name: str
    """Name in the table."""
    measure: str
    by: str
    """Short description of the measurement."""
    value: float | None
    """None if it is not defined."""
    examples: int
    low: float | None = None
    """Lower end of the 95% interval over examples; `high` is the upper end."""
    high: float | None = None
    deviation: float | None = None
    """Standard deviation over `seeds` of fine-tuning."""
    seeds: tuple[int, ...] = ()
    better: Better = "higher"
    """None if the values of two models do not compare."""
    percent: bool = True
    """Whether tables show it in percent."""
    baselines: dict[str, float] = {}
    """Scores of baselines on the same examples, by name."""
    detail: bool = False
    """Whether it is a detail of the row above it."""
    conditions: str = ""
    """Conditions to quote with the value: a subset, epochs, seeds."""

    def figure(self, **conditions: Any) -> Figure | None:
        """The reported number with its interval and conditions; None if its value is not defined."""
        if self.value is None:
            return None
        numbers: dict[str, Any] = {"low": self.low, "high": self.high, "deviation": self.deviation}
        return Figure(metric=self.measure, value=self.value, conditions=conditions, **numbers)


class PublishedFigure(Settings):
    """A published figure of another system."""

    system: str
    value: float
    """Value as the row shows it, in percent or not."""
    source: str


def finite_or_none(number: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON cannot express."""
    return number if math.isfinite(number) else None


def normal_interval(value: float, error: float, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """The value plus and minus z standard errors."""
    return value - z * error, value + z * error
