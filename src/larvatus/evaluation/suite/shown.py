"""The table of a suite for terminals and pages: one row per figure, one column per model.

    console.print(as_table(results))
    Path("suite.md").write_text(as_markdown(results))

`cells.py` formats the cells.
"""

from __future__ import annotations

from collections.abc import Sequence

from larvatus.core.tables import Cell, Column, Table, escaped
from larvatus.evaluation.suite.cells import row_cells, suite_columns
from larvatus.evaluation.suite.results import ROLES, PartRecord, SuiteResults


def as_table(results: SuiteResults) -> Table:
    """The table, with its caveats as notes."""
    roles, heads = list(results.labels), suite_columns(results.labels)
    numbers = range(2, 2 + len(roles))
    rows = []
    for row in results.rows():
        styles = {2 + roles.index(row.best): "bold green"} if row.best else {}
        styles |= {len(heads) - 3: "dim", len(heads) - 1: "dim"}
        rows.append([Cell(text, styles.get(place, "")) for place, text in enumerate(row_cells(row, results.labels))])
    return Table(
        title=f"suite {results.suite.name}",
        columns=[Column(head, right=place in numbers) for place, head in enumerate(heads)],
        rows=rows,
        notes=[Cell(line, style=style) for line, style in _notes(results)],
    )


def as_markdown(results: SuiteResults) -> str:
    """The table for a documentation page, with its caveats and commands."""
    table = as_table(results)
    notes = [f"- {escaped(line)}" for line, _ in _notes(results)]
    commands = [f"    {record.command}" for record in _records(results)]
    return "\n".join([table.markdown(), "", *notes, "", "Commands:", "", *commands]) + "\n"


def _records(results: SuiteResults) -> list[PartRecord]:
    order = [part.name for part in results.suite.parts]
    return [held[name] for held in results.records.values() for name in order if name in held]


def _notes(results: SuiteResults) -> list[tuple[str, str]]:
    """Notes below the table, with their styles."""
    lines: list[tuple[str, str]] = []
    for each in results.unmeasured:
        lines.append((f"{each.part}, {each.label}: not measured: {each.why}", "yellow"))
    records = _records(results)
    for record in records:
        lines += [(f"{record.part}, {record.label}: {note}", "dim") for note in record.notes]
    lines += [(note, "dim") for note in _between(results)]
    shown = [row for row in results.rows() if row.references]
    for source in dict.fromkeys(reference.source for row in shown for reference in row.references):
        names = dict.fromkeys(
            reference.system for row in shown for reference in row.references if reference.source == source
        )
        lines.append((f"published ({', '.join(names)}): {source}", "dim"))
    lines += [(line, "dim") for line in _facts(records)]
    return lines


def _between(results: SuiteResults) -> list[str]:
    """Paired differences of the two models, for parts that store the needed data."""
    if any(role not in results.records for role in ROLES):
        return []
    ours, theirs = (results.records[role] for role in ROLES)
    return [
        f"{part.name}, {results.labels[ROLES[0]]}: {note}"
        for part in results.suite.parts
        if part.name in ours and part.name in theirs
        for note in part.between(ours[part.name].details, theirs[part.name].details, results.labels[ROLES[1]])
    ]


def _facts(records: Sequence[PartRecord]) -> list[str]:
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
