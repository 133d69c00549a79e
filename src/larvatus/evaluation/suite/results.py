"""Results of a suite: one record per model and part, each in its own file, and all of them together as a table.

    runs/suite/model/blimp.json       figures, inputs, date and command; a resume reuses it
    runs/suite/beside/blimp.json      the same for the second model
    runs/suite/suite.json, suite.md   all records, rewritten by every run

    console.print(as_table(results))
    row_cells(row, {"model": "mine"})      # ["CoLA", "Matthews", "31.2 ± 0.8 [26.0, 36.4]", …]

A cell is a value, its deviation over several seeds, and the 95% interval over examples in brackets. Shares and
correlations are in percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core import notebook
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there
from larvatus.core.run_identity import changed_fields
from larvatus.core.settings import Settings
from larvatus.core.tables import Cell, Column, Table, Tabular, escaped, flatten
from larvatus.evaluation.suite.part import PublishedFigure, Suite, SuiteFigure
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.claims import Claim, claim_dicts

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """One row of the table: a figure of each model."""

    part: str
    title: str
    figures: dict[str, SuiteFigure]
    """Figures by role."""
    reasons: dict[str, str]
    """Reasons by role why a part was not measured."""
    references: tuple[PublishedFigure, ...] = ()

    @property
    def first(self) -> SuiteFigure | None:
        return next(iter(self.figures.values()), None)

    @property
    def best(self) -> str | None:
        """Role of the better model, if two models compare and their intervals do not overlap."""
        measured = [(role, figure) for role, figure in self.figures.items() if figure.value is not None]
        if len(measured) != 2 or self.first is None or self.first.better is None:
            return None
        (low_role, lower), (high_role, higher) = sorted(measured, key=lambda pair: pair[1].value or 0.0)
        top, bottom = lower.high, higher.low
        if top is None or bottom is None or top >= bottom:
            return None
        return low_role if self.first.better == "lower" else high_role


def suite_columns(labels: Mapping[str, str]) -> list[str]:
    """Names of the columns; `labels` are the names of the models by role."""
    return ["", "measure", *labels.values(), "baseline", "published", "measured by"]


def row_cells(row: SuiteRow, labels: Mapping[str, str]) -> list[str]:
    figure = row.first
    cells = [_name(row, figure), figure.measure if figure else "", *(_cell(row, role) for role in labels)]
    return [*cells, _baselines(figure), _published(row), _by(figure)]


def _name(row: SuiteRow, figure: SuiteFigure | None) -> str:
    if figure is None:
        return row.title
    if figure.detail:
        return f"  {figure.name}"
    return f"{figure.name} ({figure.conditions})" if figure.conditions else figure.name


def number(value: float, figure: SuiteFigure) -> str:
    """
    >>> figure = SuiteFigure(id="a", name="a", measure="accuracy", by="", value=0.1, examples=1)
    >>> number(0.6318, figure)
    '63.2'
    """
    return f"{100 * value:.1f}" if figure.percent else f"{value:.3f}"


def _cell(row: SuiteRow, role: str) -> str:
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


def _baselines(figure: SuiteFigure | None) -> str:
    if figure is None or not figure.baselines:
        return ""
    return ", ".join(f"{name} {number(value, figure)}" for name, value in figure.baselines.items())


def _published(row: SuiteRow) -> str:
    return ", ".join(f"{reference.system} {reference.value:.1f}" for reference in row.references)


def _by(figure: SuiteFigure | None) -> str:
    if figure is None or figure.detail:
        return ""
    return f"{figure.by}; {figure.examples:,} scored"


ROLES = ("model", "beside")


class PartRecord(Settings):
    """The measured figures of one part of one model."""

    part: str
    of: dict[str, Any]
    """Inputs: checksums of the model and of the data, settings."""
    label: str
    """Label of the model."""
    figures: list[SuiteFigure]
    details: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    seconds: float
    made: str
    """Time of the measurement, in UTC."""
    command: str
    """Command that measures it again."""
    machine: dict[str, Any]
    """Versions, device, precision."""


class SkippedPart(Struct, frozen=True, kw_only=True):
    """A part that this run could not measure for a model."""

    role: str
    label: str
    part: str
    why: str
    short: str


def record_file(out: Path, role: str, part: str) -> Path:
    return out / role / f"{part}.json"


def write_record(path: Path, record: PartRecord) -> None:
    """Write a record atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checksummed(path, msgspec.to_builtins(record))


def read_record(path: Path, of: dict[str, Any] | None = None) -> PartRecord | None:
    """The stored record, or None; refused if its inputs differ from `of`."""
    if not is_there(path):
        return None
    way = "delete it to measure again, or choose another --out"
    kept = read_checksummed(path, way=way)
    try:
        record = msgspec.convert(kept, PartRecord)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path} is no result of a suite: {fault}; {way}") from fault
    if of is not None and (changed := changed_fields(record.of, msgspec.json.decode(msgspec.json.encode(of)))):
        raise ArtefactError(f"{path} is of something else: {'; '.join(map(str, changed[:4]))}; {way}")
    return record


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteResults(Tabular):
    """Records of all measured parts and models, of this run and earlier ones."""

    suite: Suite
    records: dict[str, dict[str, PartRecord]]
    """Records by role and part."""
    unmeasured: list[SkippedPart] = field(default_factory=list)
    labels: dict[str, str]
    """Labels of the models by role."""
    claims: tuple[Claim, ...] = ()
    """Claims of the first model for its card."""

    def figure(self, id: str, role: str = "model") -> SuiteFigure:
        """A figure by its id: ``results.figure("blimp").value``."""
        for record in self.records.get(role, {}).values():
            for figure in record.figures:
                if figure.id == id:
                    return figure
        raise KeyError(id)

    def figures(self, role: str = ROLES[0]) -> Iterator[Figure]:
        """Every figure of a model, with its part as a condition."""
        for part, record in self.records.get(role, {}).items():
            for row in record.figures:
                if (figure := row.figure(task=part, category=row.name)) is not None:
                    yield figure

    def rows(self) -> Iterator[SuiteRow]:
        """Rows in the order of the suite; a part without measurements has one row without figures."""
        for part in self.suite.parts:
            records = {role: held[part.name] for role, held in self.records.items() if part.name in held}
            reasons = {each.role: each.short for each in self.unmeasured if each.part == part.name}
            ids = list(dict.fromkeys(figure.id for record in records.values() for figure in record.figures))
            if not ids and reasons:
                yield SuiteRow(part=part.name, title=part.title, figures={}, reasons=reasons)
            for id in ids:
                figures = {
                    role: figure for role, record in records.items() for figure in record.figures if figure.id == id
                }
                yield SuiteRow(
                    part=part.name,
                    title=part.title,
                    figures=figures,
                    reasons=reasons,
                    references=tuple(self.suite.references.get(id, ())),
                )

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each figure of each model."""
        return [
            {"part": row.part, "title": row.title, "model": self.labels[role], **flatten(msgspec.to_builtins(figure))}
            for row in self.rows()
            for role, figure in row.figures.items()
        ]

    def _repr_html_(self) -> str:
        rows = [row_cells(row, self.labels) for row in self.rows()]
        return notebook.table(suite_columns(self.labels), rows, title=f"suite {self.suite.name}")

    def to_dict(self) -> dict[str, Any]:
        models = {
            role: {"name": self.labels[role], "parts": {name: msgspec.to_builtins(r) for name, r in held.items()}}
            for role, held in self.records.items()
        }
        references = {id: msgspec.to_builtins(list(given)) for id, given in self.suite.references.items()}
        return {
            "suite": self.suite.name,
            "models": models,
            "not_measured": msgspec.to_builtins(self.unmeasured),
            "references": references,
            "claims": claim_dicts(self.claims),
        }


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
