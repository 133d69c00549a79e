"""What a suite came to: a record for each model and part, kept in a file each; all of them together.

runs/suite/model/blimp.json       what was measured, of what, when, by which command; a resume takes it
runs/suite/beside/blimp.json      the same of the model beside
runs/suite/suite.json, suite.md   all of it, written anew by every run

"""

from __future__ import annotations

from collections.abc import Iterator
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
from larvatus.core.tabular import Tabular, flatten
from larvatus.evaluation.suite.cells import SuiteRow, row_cells, suite_columns
from larvatus.evaluation.suite.figures import SuiteFigure
from larvatus.evaluation.suite.suite import Suite
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.claims import Claim, claim_dicts

ROLES = ("model", "beside")


class PartRecord(Settings):
    """One part of one model, measured."""

    part: str
    of: dict[str, Any]
    """What it depends on: checksums of the model and of the data, settings."""
    label: str
    """Of the model."""
    figures: list[SuiteFigure]
    details: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    seconds: float
    made: str
    """When, in UTC."""
    command: str
    """That measures it again."""
    machine: dict[str, Any]
    """Versions, device, precision."""


class SkippedPart(Struct, frozen=True, kw_only=True):
    """A part that this run could not measure of a model."""

    role: str
    label: str
    part: str
    why: str
    short: str


def record_file(out: Path, role: str, part: str) -> Path:
    return out / role / f"{part}.json"


def write_record(path: Path, record: PartRecord) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checksummed(path, msgspec.to_builtins(record))


def read_record(path: Path, of: dict[str, Any] | None = None) -> PartRecord | None:
    """What was measured before, None where nothing was; refused where it is of something else than `of`."""
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
    """Every part of every model that was measured, now or before."""

    suite: Suite
    records: dict[str, dict[str, PartRecord]]
    """By role and part."""
    unmeasured: list[SkippedPart] = field(default_factory=list)
    labels: dict[str, str]
    """Of the models, by role."""
    claims: tuple[Claim, ...] = ()
    """Figures of the model (not of the one beside it) as its card takes them over."""

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
        """In the order of the suite; a part that no model has been measured on has one row without figures."""
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
