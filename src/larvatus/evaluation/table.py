"""Results as a table for people: a line for each measure, a column for each contestant, the best in bold."""

from __future__ import annotations

import math

from larvatus.engine.watch import Cell, Column, Table
from larvatus.evaluation.results import Kind, Results, Row, Value


def as_table(results: Results) -> Table:
    """The table, and below it what a reader must know."""
    rows: list[list[Cell]] = []
    group = ""
    for row in results.rows():
        if row.group != group:
            group = row.group
            rows.append([Cell(group, style="dim")])
        rows.append([Cell(f"  {row.name}"), *(_cell(row, label) for label in results.labels)])
    return Table(
        title=f"the same budget for all: {results.budget}",
        columns=[Column("", right=False), *(Column(label) for label in results.labels)],
        rows=rows,
        notes=[Cell(f"note: {note}", style="yellow") for note in results.notes],
    )


def _cell(row: Row, label: str) -> Cell:
    return Cell(said(row.values[label], row.kind), style="bold green" if label in row.best else "")


def said(value: Value | None, kind: Kind) -> str:
    """
    >>> said(Value(mean=0.3145, deviation=0.002), "share"), said(Value(mean=4.4e6), "count"), said(None, "number")
    ('31.4% ± 0.2', '4.40M', '–')
    """
    if value is None:
        return "–"
    spread = value.deviation or 0.0
    if kind == "share":
        words, extra = f"{value.mean:.1%}", f" ± {100 * spread:.1f}"
    elif kind == "count":
        words, extra = _short(value.mean), f" ± {_short(spread)}"
    else:
        words, extra = f"{value.mean:.3f}", f" ± {spread:.3f}"
    return words + extra if value.deviation else words


def _short(number: float) -> str:
    """
    >>> [_short(n) for n in (12, 9_999, 4_386_178, 31_000_000_000)]
    ['12', '9,999', '4.39M', '31.0B']
    """
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if number >= size:
            digits = max(0, 2 - int(math.log10(number / size)))
            return f"{number / size:.{digits}f}{unit}"
    return f"{number:,.0f}"
