"""A confusion matrix as a PNG: gold in rows, answers in columns, shaded by the root of their share of the row.

    draw_confusion(found.confusion, found.labels, Path("confusion.png"), title="runs/rte · dev.tsv")

The root lets rare mistakes show. Counts stand in the cells where classes are few; beyond `MOST` classes the most
frequent are shown, the rest in one row and column. Wants matplotlib, the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.outputs import escape_dollars, new_output
from larvatus.metrics.classification import divide

COUNTED = 20
"""Classes up to which counts stand in the cells."""
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
