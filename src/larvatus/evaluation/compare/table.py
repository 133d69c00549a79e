"""Results of a comparison as a table: one row per metric, one column per candidate.

The best value is bold only if its 95% interval overlaps with no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from larvatus.core.tables import Cell, Column, Table
from larvatus.evaluation.compare.fine_tuned import AVERAGE, GROUP, SetFacts
from larvatus.evaluation.compare.results import ComparisonResults
from larvatus.evaluation.compare.values import Kind, MetricRow, SeedMean


def as_table(results: ComparisonResults) -> Table:
    """The table of pretraining, with its caveats as notes."""
    rows: list[list[Cell]] = []
    group = ""
    for row in results.rows():
        if row.group == GROUP:
            continue
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


def fine_tuned_table(results: ComparisonResults) -> Table | None:
    """Scores after fine-tuning, each with its interval below it; None if nothing was fine-tuned."""
    if not results.sets:
        return None
    rows: list[list[Cell]] = []
    for row in results.fine_tuned_rows():
        rows.append([Cell(row.name), *(_cell(row, label) for label in results.labels)])
        if row.name != AVERAGE:
            intervals = [_interval(row.values[label], row.kind) for label in results.labels]
            rows.append([Cell("  95% interval", style="dim"), *(Cell(words, style="dim") for words in intervals)])
    seeds = len({(result.seed, result.tuning_seed) for result in results.tuned})
    over = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    refused = [f"note: {each.label} was not fine-tuned on {each.set}: {each.why}" for each in results.refusals]
    return Table(
        title=f"fine-tuned on the same labelled sets{over}",
        columns=[Column("", right=False), *(Column(label) for label in results.labels)],
        rows=rows,
        notes=[Cell(_facts(results.sets), style="dim"), *(Cell(note, style="yellow") for note in refused)],
    )


def _facts(sets: Sequence[SetFacts]) -> str:
    """Numbers of training and of scored examples."""
    counts = ", ".join(f"{facts.name} {facts.train:,} and {facts.scored:,}" for facts in sets)
    chosen = [facts.name for facts in sets if not facts.is_test]
    by = f"; best weights were chosen by the scored examples of {', '.join(chosen)}" if chosen else ""
    return f"examples learnt from and scored: {counts}{by}"


def _interval(value: SeedMean | None, kind: Kind) -> str:
    """
    >>> _interval(SeedMean(mean=0.8, low=0.774, high=0.82), "share")
    '77.4 to 82.0'
    """
    if value is None or value.low is None or value.high is None:
        return ""
    digits, scale = (1, 100) if kind == "share" else (3, 1)
    return f"{scale * value.low:.{digits}f} to {scale * value.high:.{digits}f}"


def _cell(row: MetricRow, label: str) -> Cell:
    return Cell(format_value(row.values[label], row.kind), style="bold green" if label == row.best else "")


def format_value(value: SeedMean | None, kind: Kind) -> str:
    """
    >>> format_value(SeedMean(mean=0.3145, deviation=0.002), "share"), format_value(SeedMean(mean=4.4e6), "count")
    ('31.4% ± 0.2', '4.40M')
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
