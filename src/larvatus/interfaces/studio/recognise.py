"""Recognise a file of labelled examples, with the readers and checks of fine-tuning.

    recognised = recognise(Path("reviews.csv"))
    recognised.task, recognised.to_dict()["balance"]                   # 'classify', {'train': {'neg': 40, 'pos': 41}}

The task is guessed as `larvatus data check` guesses it, or named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError, LarvatusError, UsageError
from larvatus.data.labelled.check import check
from larvatus.data.labelled.problems import Errors, Problems, Report
from larvatus.data.labelled.records import Dataset
from larvatus.tasks.examples import task_of_file
from larvatus.tasks.registry import TASKS, parse_file_options

LEARNABLE = ("classify", "tag", "spans", "answer", "choose")
"""Tasks that need only a file: a prompt also needs label words, writing another kind of model."""
SHOWN = 5
"""Examples in the report, and places of each finding."""
LONGEST = 80
"""Characters of an example in the report."""


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """Contents of a file of labelled examples."""

    task: str
    guessed: bool
    data: Dataset[Any]
    report: Report
    unusable: int
    """Rows without text or label, for example: they are skipped, or prevent the training."""

    @property
    def may_learn(self) -> bool:
        """Whether nothing prevents the training."""
        return not self.report.errors

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "guessed": self.guessed,
            "tasks": list(LEARNABLE),
            "does": TASKS[self.task].card.what,
            "read": self.data.describe(),
            "columns": self.data.columns,
            "examples": [
                {"reads": _short(example.reads()), "answer": example.answer_shown()}
                for example in self.data.examples[:SHOWN]
            ],
            "may_learn": self.may_learn,
            "unusable": self.unusable,
            **self.report.to_dict(),
        }

    def without_folder(self, folder: Path) -> dict[str, Any]:
        """The same without the folder of the file, which the user need not know."""
        report: dict[str, Any] = _without(f"{folder}{os.sep}", self.to_dict())
        return report


def recognise(
    path: Path, *, task: str | None = None, columns: Mapping[str, Any] | None = None, errors: Errors = "refuse"
) -> Recognised:
    """Read a file as fine-tuning does. Problems are reported, not raised, unless nothing can be read."""
    name = task or task_of_file(str(path))
    if name not in LEARNABLE:
        raise UsageError(f"{name} cannot be trained here; choose {', '.join(LEARNABLE)}, or larvatus finetune {name}")
    problems = Problems()
    data = TASKS[name].read(str(path), parse_file_options(name, columns or {}), problems=problems)
    report = check(data, None, problems=problems, shown=SHOWN, errors=errors)
    return Recognised(task=name, guessed=task is None, data=data, report=report, unusable=len(problems))


@contextmanager
def naming_files_only(folder: Path) -> Iterator[None]:
    """Within it, errors name files without the folder, which the user need not know."""
    try:
        yield
    except LarvatusError as fault:
        message = str(_without(f"{folder}{os.sep}", str(fault))).replace(str(folder), folder.name)
        raise (UsageError if isinstance(fault, UsageError) else DataError)(message) from None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _without(prefix: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, dict):
        return {key: _without(prefix, each) for key, each in value.items()}
    return [_without(prefix, each) for each in value] if isinstance(value, list) else value
