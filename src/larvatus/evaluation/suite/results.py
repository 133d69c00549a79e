"""Results of a suite: one record per model and part, each in its own file, and all of them together.

runs/suite/model/blimp.json       figures, inputs, date and command; a resume reuses it
runs/suite/beside/blimp.json      the same for the second model
runs/suite/suite.json, suite.md   all records, rewritten by every run

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
