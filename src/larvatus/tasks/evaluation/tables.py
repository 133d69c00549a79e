"""Evaluations for people, as lines and tables of plain text: whoever prints them knows how.

yield from class_table("type", by_type)
yield "threshold 0.5"
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from larvatus.core.arrays import Ints
from larvatus.core.tables import ReportPart, Table
from larvatus.metrics.calibration import Reliability
from larvatus.metrics.classification import F1
from larvatus.metrics.entities import EntityErrors

MOST_ROWS = 30
"""Classes in a table; the rest are counted."""
MOST_COLUMNS = 12
"""Classes of a confusion matrix that is shown whole; of a larger one the most frequent confusions are."""
CONFUSIONS = 10


def format_score(value: float) -> str:
    """A score with four digits; a dash where it is not defined."""
    return "–" if math.isnan(value) else f"{value:.4f}"


class Confusion(Protocol):
    @property
    def gold(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def share(self) -> float: ...


def class_table(name: str, rows: Mapping[str, F1]) -> Iterator[ReportPart]:
    """Precision, recall and F1 of each."""
    shown = list(rows.items())[:MOST_ROWS]
    yield Table(
        (name, "precision", "recall", "F1", "gold"),
        tuple(
            (label, f"{score.precision:.4f}", f"{score.recall:.4f}", f"{score.f1:.4f}", f"{score.support:,}")
            for label, score in shown
        ),
        blank_before=True,
    )
    if len(rows) > len(shown):
        yield f"… and {len(rows) - len(shown):,} more (--json has all)"


def entity_error_line(what: str, wrong: EntityErrors) -> Iterator[ReportPart]:
    yield (
        f"\n{what}: {wrong.boundary:,} with wrong boundaries, {wrong.type:,} of the wrong type, "
        f"{wrong.both:,} both; {wrong.missed:,} missed, {wrong.spurious:,} spurious"
    )


def confusion_table(
    counts: Ints, labels: Sequence[str], confused: Sequence[Confusion], *, pairs: bool = False
) -> Iterator[ReportPart]:
    """The whole matrix of a few classes; of many, and where `pairs` are asked for, the most frequent confusions."""
    if len(labels) <= MOST_COLUMNS and not pairs:
        rows = zip(labels, counts.tolist(), strict=True)
        cells = tuple((label, *(f"{count:,}" if count else "·" for count in row)) for label, row in rows)
        yield Table(("gold ↓ answer →", *labels), cells, blank_before=True)
    elif confused:
        yield Table(
            ("gold", "taken for", "times", "of its gold"),
            tuple((pair.gold, pair.found, f"{pair.count:,}", f"{pair.share:.1%}") for pair in confused[:CONFUSIONS]),
            blank_before=True,
        )
    else:
        yield ""


def reliability_table(bins: Reliability) -> Table:
    """How often answers of each probability are right."""
    rows = zip(bins.edges[:-1], bins.edges[1:], bins.count, bins.confidence, bins.accuracy, strict=True)
    return Table(
        ("probability", "answers", "mean", "right"),
        tuple(
            (f"{low:.2f} to {high:.2f}", f"{count:,}", f"{sure:.3f}", f"{right:.3f}")
            for low, high, count, sure, right in rows
            if count
        ),
    )
