"""What a suite measures: a figure is one row of its table, of one model; a reference is what others reported.

    Figure(id="cola", name="CoLA", measure="Matthews", value=0.31, low=0.26, high=0.36, examples=1_043, by="…")

The interval is over examples, 95%; the deviation over seeds of fine-tuning, where there are several.
"""

from __future__ import annotations

import math
from typing import Any

from larvatus.core.settings import Settings
from larvatus.evaluation.compare.values import Better
from larvatus.metrics.figures import Figure


class SuiteFigure(Settings, omit_defaults=True):
    """One number of one model."""

    id: str
    """The part's name, and what of it: ``blimp``, ``blimp/anaphor_agreement``."""
    name: str
    """For people."""
    measure: str
    by: str
    """How it is measured, in a phrase."""
    value: float | None
    """None where it is not defined."""
    examples: int
    low: float | None = None
    """End of the 95% interval over examples; so is `high`."""
    high: float | None = None
    deviation: float | None = None
    """Over `seeds` of fine-tuning."""
    seeds: tuple[int, ...] = ()
    better: Better = "higher"
    """None where the numbers of two models do not compare."""
    percent: bool = True
    """Whether people read it in percent."""
    baselines: dict[str, float] = {}
    """What shortcuts get on the same examples, by name."""
    detail: bool = False
    """A share of the row above it."""
    conditions: str = ""
    """What must be read with the value wherever it is quoted: a subset, epochs, seeds."""

    def figure(self, **conditions: Any) -> Figure | None:
        """The reported number with its interval and conditions; None if its value is not defined."""
        if self.value is None:
            return None
        numbers: dict[str, Any] = {"low": self.low, "high": self.high, "deviation": self.deviation}
        return Figure(metric=self.measure, value=self.value, conditions=conditions, **numbers)


class PublishedFigure(Settings):
    """A figure that somebody published."""

    system: str
    value: float
    """As the row shows it: in percent where that is."""
    source: str


def finite_or_none(number: float) -> float | None:
    """What JSON can say: it has no NaN."""
    return number if math.isfinite(number) else None


def normal_interval(value: float, error: float, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """The value and z standard errors on both sides."""
    return value - z * error, value + z * error
