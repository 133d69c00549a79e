"""Evaluations for people: lines and tables of text, and the confusion matrix as a picture.

yield from class_table("type", by_type)
yield "threshold 0.5"
draw_confusion(result.confusion, result.labels, Path("confusion.png"), title="runs/rte · dev.tsv")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.outputs import escape_dollars, new_output
from larvatus.core.tables import ReportPart, Table
from larvatus.metrics.calibration import Reliability
from larvatus.metrics.classification import F1, divide
from larvatus.metrics.entities import EntityErrors

MOST_ROWS = 30
"""Classes in a table; the rest are counted."""
MOST_COLUMNS = 12
"""Classes of a confusion matrix that is shown whole; of a larger one the most frequent confusions are."""
CONFUSIONS = 10


def format_score(value: float) -> str:
    """A score with four digits; a dash where it is not defined."""
    return "–" if math.isnan(value) else f"{value:.4f}"


@dataclass(frozen=True)
class ConfusedPair:
    gold: str
    found: str
    count: int
    share: float
    """Share of the words with this gold tag."""


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
    counts: Ints, labels: Sequence[str], confused: Sequence[ConfusedPair], *, pairs: bool = False
) -> Iterator[ReportPart]:
    """The whole matrix of a few classes; of many classes, or with `pairs`, the most frequent confusions."""
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


COUNTED = 20
"""Classes up to which the cells show counts."""
MOST = 60
"""Classes that are shown one by one."""
LONGEST = 24
"""Characters of a name."""
REST = "all others"


def draw_confusion(table: Ints, labels: Sequence[str], path: Path, *, title: str) -> None:
    """Write the picture as PNG."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    table, names = displayed_classes(table, labels)
    count = len(names)
    shares = divide(table, table.sum(1, keepdims=True))
    cell = 0.62 if count <= COUNTED else 0.24
    longest = max(len(name) for name in names)
    side = max(2.6, cell * count)
    name = 0.085 * longest  # inches
    turned = name > side / count
    size = (side + name + 1.7, side + (name if turned else 0.2) + 0.9)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
    points = 9 if count <= COUNTED else 6.5
    written = [escape_dollars(name) for name in names]
    axes.set_xticks(np.arange(count), written, fontsize=points, rotation=90 if turned else 0)
    axes.set_yticks(np.arange(count), written, fontsize=points)
    axes.tick_params(length=0)
    axes.spines[:].set_color("#cccccc")
    axes.set_xlabel("answer", fontsize=10)
    axes.set_ylabel("gold", fontsize=10)
    if count <= COUNTED:
        digits = max(len(f"{number:,}") for number in table.ravel().tolist())
        for row in range(count):
            for column in range(count):
                if number := int(table[row, column]):
                    colour = "white" if shares[row, column] > 0.3 else "#222222"
                    small = 9 if digits <= 5 else 7
                    axes.text(column, row, f"{number:,}", ha="center", va="center", fontsize=small, color=colour)
    figure.suptitle(escape_dollars(title), fontsize=10, x=0.01, ha="left")
    figure.colorbar(image, ax=axes, shrink=0.7, label="share of the gold class")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def displayed_classes(table: Ints, labels: Sequence[str]) -> tuple[Ints, list[str]]:
    """The classes that occur, in their order; of very many, the most frequent and the rest together.

    >>> displayed_classes(np.array([[2, 0, 1], [0, 0, 0], [0, 0, 3]]), ["a", "b", "c"])[1]
    ['a', 'c']
    """
    weight = table.sum(0) + table.sum(1)
    order = np.argsort(-weight, kind="stable")
    kept = np.sort(order[: min(MOST, int((weight > 0).sum()) or len(labels))])
    names = [label if len(label) <= LONGEST else label[: LONGEST - 1] + "…" for label in (labels[at] for at in kept)]
    others = np.setdiff1d(np.flatnonzero(weight), kept)
    small = table[np.ix_(kept, kept)]
    if not len(others):
        return small, names
    right = table[np.ix_(kept, others)].sum(1, keepdims=True)
    below = table[np.ix_(others, kept)].sum(0, keepdims=True)
    corner = table[np.ix_(others, others)].sum(keepdims=True)
    return np.block([[small, right], [below, corner]]), [*names, REST]
