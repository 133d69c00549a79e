"""What a file of labelled examples holds, by the readers and checks that fine-tuning uses itself.

    seen = recognise(Path("reviews.csv"))
    seen.task, seen.to_dict()["balance"]                   # 'classify', {'train': {'neg': 40, 'pos': 41}}

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
from larvatus.data.labelled.problems import Errors, Problems
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.report import Report
from larvatus.tasks.examples import task_of_file
from larvatus.tasks.registry import TASKS, reading_of

LEARNABLE = ("classify", "tag", "spans", "answer", "choose")
"""Tasks that need nothing but a file: a prompt wants words, writing another kind of model."""
SHOWN = 5
"""Examples that are shown, and places of each finding."""
LONGEST = 80
"""Characters of an example that are shown."""


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """A file, read."""

    task: str
    guessed: bool
    data: Dataset[Any]
    report: Report
    unusable: int
    """Rows that cannot be used, such as those without text or label: skipped, or what stops the training."""

    @property
    def may_learn(self) -> bool:
        """Whether nothing stops the training."""
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

    def shown(self, folder: Path) -> dict[str, Any]:
        """The same without the folder that the file lies in, which its reader need not know."""
        shown: dict[str, Any] = _without(f"{folder}{os.sep}", self.to_dict())
        return shown


def recognise(
    path: Path, *, task: str | None = None, columns: Mapping[str, Any] | None = None, errors: Errors = "refuse"
) -> Recognised:
    """Read a file as fine-tuning will; what is wrong with it is told, not raised, unless nothing can be read."""
    name = task or task_of_file(str(path))
    if name not in LEARNABLE:
        raise UsageError(f"{name} cannot be learnt here; choose {', '.join(LEARNABLE)}, or larvatus finetune {name}")
    problems = Problems()
    data = TASKS[name].read(str(path), reading_of(name, columns or {}), problems=problems)
    report = check(data, None, problems=problems, shown=SHOWN, errors=errors)
    return Recognised(task=name, guessed=task is None, data=data, report=report, unusable=len(problems))


@contextmanager
def naming_files_only(folder: Path) -> Iterator[None]:
    """Errors in here name files of the folder without it: its reader need not know where the studio keeps them."""
    try:
        yield
    except LarvatusError as fault:
        said = str(_without(f"{folder}{os.sep}", str(fault))).replace(str(folder), folder.name)
        raise (UsageError if isinstance(fault, UsageError) else DataError)(said) from None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _without(prefix: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, dict):
        return {key: _without(prefix, each) for key, each in value.items()}
    return [_without(prefix, each) for each in value] if isinstance(value, list) else value
