"""Scores of a model's vectors on one set, and of baselines next to them.

evaluation.metrics["spearman"].value                     # of the model
evaluation.systems["TF-IDF"]["spearman"].low
print(evaluation)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from larvatus.core.tables import Table
from larvatus.core.tabular import Row, Tabular
from larvatus.evaluation.vectors.text_vectors import MODEL
from larvatus.metrics.bootstrap import Interval

Metrics = Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True, repr=False)
class VectorEvaluation(Tabular):
    """Metrics with 95% intervals, whose unit is stated: queries, pairs, or documents and draws."""

    kind: str
    """What was measured: retrieval, sts, pairs, classification or clustering."""
    model: str
    data: str
    unit: str
    """What the intervals are over."""
    how: str
    """What was sampled, with seeds: one line."""
    systems: Mapping[str, Metrics]
    """Metrics of the model, and of the baselines."""

    @property
    def metrics(self) -> Metrics:
        """Metrics of the model; the first is the main one."""
        return self.systems[MODEL]

    def to_dict(self) -> dict[str, Any]:
        names = ("kind", "model", "data", "unit", "how")
        return {**{name: getattr(self, name) for name in names}, "scores": self.to_dicts()}

    def to_dicts(self) -> list[Row]:
        """A row for each system and metric."""
        return [
            {"system": system, "metric": name, "value": score.value, "low": score.low, "high": score.high}
            for system, metrics in self.systems.items()
            for name, score in metrics.items()
        ]

    def table(self) -> Table:
        rows = [
            (row["system"], row["metric"], f"{row['value']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}")
            for row in self.to_dicts()
        ]
        notes = (f"model: {self.model}", f"data: {self.data}", self.how, f"intervals over {self.unit}")
        return Table(("system", "metric", "score", "95% interval"), rows, title=self.kind, left=2, notes=notes)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        name, score = next(iter(self.metrics.items()))
        return f"<VectorEvaluation: {self.kind}, {name} {score.value:.4f}>"
