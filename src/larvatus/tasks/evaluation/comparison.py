"""Two models on the same examples: is the difference significant?

    both = compare_evaluations(evaluate_texts(one, data), evaluate_texts(other, data))
    both.metrics["accuracy"].difference, both.metrics["accuracy"].p, both.mcnemar

Of each metric: the difference (the second less the first) with its 95% interval by the paired bootstrap, and p by
approximate randomisation (`metrics/intervals.py`); where each text has one right answer, and of exact matches of
answers to questions, McNemar's exact test as well. Labels are matched by name, so models with classes in another order
compare.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core import notebook
from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import ReportPart, Table, Tabular, render_text
from larvatus.metrics.intervals import mcnemar, paired_bootstrap, randomisation
from larvatus.tasks.evaluation.evaluation import Evaluation, plain
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.evaluation.tables import format_score


@dataclass(frozen=True, kw_only=True)
class PairedScore:
    first: float
    second: float
    difference: float
    """Second less first."""
    low: float
    high: float
    """95% interval of the difference."""
    p: float
    """By approximate randomisation; NaN where a score is not defined."""
    p_bootstrap: float


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Texts by which of two models answers them rightly, and McNemar's p."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p: float


@dataclass(frozen=True, kw_only=True)
class ModelComparison(Tabular):
    first: str
    second: str
    metrics: dict[str, PairedScore]
    mcnemar: Outcomes | None
    """None of numbers, and of words, which are no independent examples."""

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{each.first:.4f}", f"{each.second:.4f}", f"{each.difference:+.4f}", f"{each.p:.3g}")
            for name, each in self.metrics.items()
        ]
        return notebook.table(("metric", self.first, self.second, "difference", "p"), rows)

    def __str__(self) -> str:
        return render_text(self.parts())

    def parts(self) -> Iterator[ReportPart]:
        """Everything that `print` and `larvatus evaluate --against` show."""
        yield f"this ({self.second}) less the other ({self.first})"
        rows = []
        for name, each in self.metrics.items():
            signed = f"{each.difference:+.4f}" if not math.isnan(each.difference) else "–"
            interval = f"{format_score(each.low)} to {format_score(each.high)}"
            rows.append(
                (name, format_score(each.first), format_score(each.second), signed, interval, format_score(each.p))
            )
        yield Table(("metric", "other", "this", "difference", "95% interval", "p"), tuple(rows))
        yield "p by approximate randomisation; interval by the paired bootstrap"
        if (pair := self.mcnemar) is not None:
            yield (
                f"McNemar: p {pair.p:.4f} ({pair.only_second:,} right only in this, {pair.only_first:,} in the other "
                f"alone, {pair.both:,} in both, {pair.neither:,} in neither)"
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "metrics": {name: plain(dataclasses.asdict(each)) for name, each in self.metrics.items()},
            "mcnemar": None if self.mcnemar is None else dataclasses.asdict(self.mcnemar),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each metric: both models, their difference with its interval, and p."""
        return [{"metric": name, **row} for name, row in self.to_dict()["metrics"].items()]


def compare_evaluations(
    first: Evaluation, second: Evaluation, *, samples: int = 1000, seed: int = 0
) -> ModelComparison:
    if first.data.examples != second.data.examples:
        raise DataError(
            f"two models are compared on the same examples, not on {first.data.source} and {second.data.source}"
        )
    if type(first) is not type(second):
        raise UsageError(f"{first.model} and {second.model} do different tasks; compare two of the same")
    paired = first.paired(second)
    outcomes = None if paired.right is None else _outcomes(*paired.right)
    metrics = {
        name: _paired(metric, paired.second[name], samples=samples, seed=seed) for name, metric in paired.first.items()
    }
    return ModelComparison(first=first.model, second=second.model, metrics=metrics, mcnemar=outcomes)


def _paired(first: ResampledMetric, second: ResampledMetric, *, samples: int, seed: int) -> PairedScore:
    a, b = first.rows, second.rows
    interval = paired_bootstrap(a, b, first.score, of=first.of, samples=samples, seed=seed)
    chance = randomisation(a, b, first.score, of=first.of, samples=samples, seed=seed)
    known = not np.isnan(interval.difference)
    assert interval.low is not None
    assert interval.high is not None
    return PairedScore(
        first=interval.first,
        second=interval.second,
        difference=interval.difference,
        low=interval.low,
        high=interval.high,
        p=chance.p if known else float("nan"),
        p_bootstrap=interval.p if known else float("nan"),
    )


def _outcomes(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> Outcomes:
    return Outcomes(
        both=int((a & b).sum()),
        only_first=int((a & ~b).sum()),
        only_second=int((~a & b).sum()),
        neither=int((~a & ~b).sum()),
        p=mcnemar(a, b),
    )
