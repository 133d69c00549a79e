"""The table of a suite, for a terminal and for a page: a row for each figure, a column for each model.

    console.print(as_table(results))
    Path("suite.md").write_text(as_markdown(results))

A cell is the value with the deviation over seeds, if there are several, and the 95% interval over examples in
brackets. Shares and correlations are in percent.
"""

from __future__ import annotations

from collections.abc import Sequence

from larvatus.engine.watch import Cell, Column, Table
from larvatus.evaluation.suite.figures import Figure
from larvatus.evaluation.suite.results import Record, Row, SuiteResults

NOTHING = "–"


def as_table(results: SuiteResults) -> Table:
    """For a terminal, with what a reader must know below it."""
    roles = list(results.labels)
    rows = []
    for row in results.rows():
        best = _best(row)
        figure = next(iter(row.figures.values()), None)
        cells = [Cell(_name(row, figure)), Cell(figure.measure if figure else "")]
        cells += [Cell(_cell(row, role), style="bold green" if role == best else "") for role in roles]
        cells += [Cell(_shortcuts(figure), style="dim"), Cell(_published(row)), Cell(_by(figure), style="dim")]
        rows.append(cells)
    return Table(
        title=f"suite {results.suite.name}",
        columns=[
            Column("", right=False),
            Column("measure", right=False),
            *(Column(results.labels[role]) for role in roles),
            Column("shortcut", right=False),
            Column("published", right=False),
            Column("measured by", right=False),
        ],
        rows=rows,
        notes=[Cell(line, style=style) for line, style in _notes(results)],
    )


def as_markdown(results: SuiteResults) -> str:
    """For a page of documentation: the table, what must be known of it, and the commands."""
    roles = list(results.labels)
    heads = ["", "measure", *(results.labels[role] for role in roles), "shortcut", "published", "measured by"]
    lines = ["| " + " | ".join(map(_escaped, heads)) + " |", "|" + " --- |" * len(heads)]
    for row in results.rows():
        figure, best = next(iter(row.figures.values()), None), _best(row)
        cells = [_name(row, figure), figure.measure if figure else ""]
        cells += [f"**{_cell(row, role)}**" if role == best else _cell(row, role) for role in roles]
        cells += [_shortcuts(figure), _published(row), _by(figure)]
        lines.append("| " + " | ".join(map(_escaped, cells)) + " |")
    lines.append("")
    lines += [f"- {_escaped(line)}" for line, _ in _notes(results)]
    lines += ["", "Commands:", ""]
    lines += [f"    {record.command}" for record in _records(results)]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*") if not text.startswith("**") else text.replace("|", "\\|")


def _name(row: Row, figure: Figure | None) -> str:
    if figure is None:
        return row.title
    return f"  {figure.name}" if figure.detail else figure.name


def number(value: float, figure: Figure) -> str:
    """
    >>> figure = Figure(id="a", name="a", measure="accuracy", by="", value=0.1, examples=1)
    >>> number(0.6318, figure)
    '63.2'
    """
    return f"{100 * value:.1f}" if figure.percent else f"{value:.3f}"


def _cell(row: Row, role: str) -> str:
    figure = row.figures.get(role)
    if figure is None:
        return row.reasons.get(role, NOTHING)
    if figure.value is None:
        return "not defined"
    words = number(figure.value, figure)
    if figure.deviation is not None:
        words += f" ± {number(figure.deviation, figure)}"
    if figure.low is not None and figure.high is not None:
        words += f" [{number(figure.low, figure)}, {number(figure.high, figure)}]"
    return words


def _best(row: Row) -> str | None:
    """Whose value is best, where two compare."""
    values = {role: figure.value for role, figure in row.figures.items() if figure.value is not None}
    better = next(iter(row.figures.values())).better if row.figures else None
    if len(values) < 2 or better is None or len(set(values.values())) < 2:
        return None
    choose = min if better == "lower" else max
    return choose(values, key=lambda role: values[role])


def _shortcuts(figure: Figure | None) -> str:
    if figure is None or not figure.baselines:
        return ""
    return ", ".join(f"{name} {number(value, figure)}" for name, value in figure.baselines.items())


def _published(row: Row) -> str:
    return ", ".join(f"{reference.system} {reference.value:.1f}" for reference in row.references)


def _by(figure: Figure | None) -> str:
    if figure is None or figure.detail:
        return ""
    return f"{figure.by}; {figure.examples:,} scored"


def _records(results: SuiteResults) -> list[Record]:
    order = [part.name for part in results.suite.parts]
    return [held[name] for held in results.records.values() for name in order if name in held]


def _notes(results: SuiteResults) -> list[tuple[str, str]]:
    """Lines below the table, with their styles."""
    lines: list[tuple[str, str]] = []
    for each in results.unmeasured:
        lines.append((f"{each.part}, {each.label}: not measured: {each.why}", "yellow"))
    records = _records(results)
    for record in records:
        lines += [(f"{record.part}, {record.label}: {note}", "dim") for note in record.notes]
    shown = [row for row in results.rows() if row.references]
    for source in dict.fromkeys(reference.source for row in shown for reference in row.references):
        names = dict.fromkeys(
            reference.system for row in shown for reference in row.references if reference.source == source
        )
        lines.append((f"published ({', '.join(names)}): {source}", "dim"))
    lines += [(line, "dim") for line in _facts(records)]
    return lines


def _facts(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    seeds = sorted({len(figure.seeds) for record in records for figure in record.figures if figure.seeds})
    spread = " ± is the deviation over seeds of fine-tuning;" if any(count > 1 for count in seeds) else ""
    days = sorted({record.made[:10] for record in records})
    machines = dict.fromkeys(
        f"larvatus {record.machine['larvatus']}, torch {record.machine['torch']}, {record.machine['device']}"
        for record in records
    )
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        f"percent, but for nats, mean cosine and IsoScore*;{spread} brackets hold the 95% interval over examples",
        f"measured {when}: {'; '.join(machines)}",
    ]
