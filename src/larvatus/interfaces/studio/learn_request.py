"""Requests of Learn (a file, a model, a few options), what such a file contains, and the job of the training process.

request = msgspec.json.decode(body, type=LearnRequest)
recognised = recognise(Path("reviews.csv"))           # read and checked as fine-tuning does; the task is guessed
recognised.task, recognised.to_dict()["balance"]      # 'classify', {'train': {'neg': 40, 'pos': 41}}
job = LearnJob(task="classify", model="runs/law", train="…/reviews.csv", out="runs/studio/reviews")
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from larvatus.core.errors import DataError, LarvatusError, UsageError
from larvatus.core.ranges import LearningRate, Seed, whole
from larvatus.core.settings import Settings
from larvatus.data.labelled.check import check
from larvatus.data.labelled.problems import Errors, Problems, Report
from larvatus.data.labelled.records import Dataset
from larvatus.tasks.candidates.search import is_searchable
from larvatus.tasks.classify.options import MINUTES
from larvatus.tasks.examples import task_of_file
from larvatus.tasks.registry import TASKS, parse_file_options

MOST_BYTES = 2_000_000
"""Most bytes of a file that Learn trains on; larger ones are for `larvatus finetune`."""
ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".jsonl", ".json")
LONGEST_NAME = 40
SEARCH_MINUTES = 2.0
SEARCH_UP_TO = 1_000
"""Examples up to which several ways to train are compared, where nothing else is chosen."""
EPOCHS, BATCH = whole(1, 1_000), whole(1, 1_024)


class LearnOptions(Settings):
    """Training options; None for the defaults of `larvatus finetune`."""

    epochs: Annotated[int, EPOCHS] | None = None
    rate: LearningRate | None = None
    batch: Annotated[int, BATCH] | None = None
    trained: Literal["auto", "all", "head", "last2", "lora"] | None = None
    """Part of the model that is trained; auto compares several ways by cross-validation and keeps the best."""
    minutes: Annotated[float, MINUTES] | None = None
    """Time budget of auto."""
    seed: Seed | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.searches and self.minutes is not None:
            raise UsageError("minutes is the time budget of auto; leave it out, or choose trained = auto")
        for name in ("epochs", "rate", "batch") if self.searches else ():
            if getattr(self, name) is not None:
                raise UsageError(f"auto chooses how to train; leave {name} out, or choose what is trained")

    @property
    def searches(self) -> bool:
        """Whether several ways to train are compared."""
        return self.trained == "auto"

    def settings(self) -> dict[str, Any]:
        """The options that are set, as keywords of `larvatus.finetune`."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        given = {name: value for name, value in named.items() if value is not None}
        if self.searches:
            given |= {"auto": True, "minutes": self.budget}
            del given["trained"]
        return given

    @property
    def budget(self) -> float:
        """Minutes that a search may take."""
        return SEARCH_MINUTES if self.minutes is None else self.minutes


def name_parts(name: str, endings: Sequence[str], *, refused: str, instead: str) -> tuple[str, str]:
    """Stem and ending of the name of a file that was sent; a path before them is dropped."""
    last = PurePosixPath(name.replace("\\", "/")).name
    ending = PurePosixPath(last).suffix.lower()
    if ending not in endings:
        which = f"give a file that ends in {', '.join(endings)}; {instead} reads other formats"
        raise UsageError(f"{last!r:.120} {refused}: {which}")
    return PurePosixPath(last).stem, ending


class LearnFile(Settings):
    """A small file of labelled examples, as text."""

    text: str
    name: str = "pasted.txt"
    """Name of the file. Its suffix is its format; a path before it is dropped."""
    task: str | None = None
    """Task; None to recognise it."""
    errors: Errors = "refuse"
    """What to do with unusable rows, such as those without text or label: refuse the file, or skip them."""

    def checked_name(self) -> str:
        """The name under which the file is stored."""
        stem, ending = name_parts(self.name, ENDINGS, refused="cannot be used here", instead="larvatus finetune")
        return f"{slug(stem)}{ending}"

    def check_size(self) -> None:
        size = len(self.text.encode("utf-8", errors="surrogatepass"))
        if size > MOST_BYTES:
            raise UsageError(f"{size:,} bytes are too many here, {MOST_BYTES:,} at most; use larvatus finetune")
        if not self.text.strip():
            raise UsageError("the file is empty; give labelled examples")


class LearnRequest(LearnFile):
    """A file, with the model to fine-tune on it."""

    model: str | None = None
    """Name of a served model; None for the first."""
    choices: LearnOptions = LearnOptions()


class LearnJob(Settings):
    """The job of the training process."""

    task: str
    model: str
    """Directory of the model."""
    train: str
    out: str
    choices: LearnOptions = LearnOptions()
    errors: Errors = "refuse"
    device: str = "auto"
    resume: bool = False


def slug(name: str) -> str:
    """A name that is safe in a path and a URL.

    >>> slug("Film reviews (2024)"), slug("../..")
    ('film-reviews-2024', 'examples')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_NAME].strip("-") or "examples"


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
    problems: Problems
    """Rows that cannot be used, such as those without text or label: they are skipped, or prevent the training."""

    @property
    def may_learn(self) -> bool:
        """Whether nothing prevents the training."""
        return not self.report.errors

    @property
    def searchable(self) -> bool:
        """Whether several ways to train can be compared: single texts with one class each."""
        return self.task == "classify" and is_searchable(self.data)

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
            "unusable": len(self.problems),
            "unusable_rows": [
                {"name": name, "count": count, "places": [str(each) for each in self.problems.examples[name]]}
                for name, count in self.problems.counts.items()
            ],
            "searchable": self.searchable,
            "trained": "auto" if self.searchable and len(self.data) <= SEARCH_UP_TO else "all",
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
    return Recognised(task=name, guessed=task is None, data=data, report=report, problems=problems)


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
