"""What commands that read labelled data share (`data check`, `finetune`, `evaluate`): which columns, what labels.

reading = Labelled(text=text, pair=pair, label=label, separator=separator)
reading.texts(["dev.tsv"], kind="multi-class")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from larvatus.cli.numbers import WINDOW, ranged
from larvatus.errors import UsageError
from larvatus.labelled.columns import Columns
from larvatus.labelled.groups import with_groups
from larvatus.labelled.problems import Problems
from larvatus.labelled.read import read_tagged, read_texts
from larvatus.labelled.records import Dataset, Kind, SpannedWords, TaggedExample, TextExample
from larvatus.labelled.spanned import read_spanned
from larvatus.labelled.squad import read_questions
from larvatus.labelled.tables import TableOptions
from larvatus.ranges import digits
from larvatus.tasks.fit.settings import Task

Text = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column of the text, by name or number; default: guessed."),
]
Pair = Annotated[
    str | None, typer.Option("--pair", metavar="COLUMN", help="Column of the second text of a pair; default: guessed.")
]
Label = Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column of the label; default: guessed.")]
Labels = Annotated[Kind | None, typer.Option("--labels", help="What labels are; default: as they look.")]
Separator = Annotated[
    str | None, typer.Option("--separator", metavar="TEXT", help="What parts several labels in a cell.")
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row names columns; default: as it looks."),
]
Quoting = Annotated[
    bool | None,
    typer.Option("--quoting/--no-quoting", help="Whether quotes hold cells together; default: only in CSV."),
]
Word = Annotated[str | None, typer.Option("--word", metavar="COLUMN", help="Column of the word; default: the first.")]
Tag = Annotated[
    str | None,
    typer.Option("--tag", metavar="COLUMN", help="Column of the tag, or a key of CoNLL-U; default: last, UPOS."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="COLUMN", help="Without --dev: examples of one group are held out together."),
]
ForTask = Annotated[
    Task | None,
    typer.Option("--for", help="Read as finetune of this task reads; default: classify or tag, as it looks."),
]
Repair = Annotated[
    bool, typer.Option("--repair", help="Read illegal sequences of tags as conlleval does, in place of refusing them.")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse labels that the training examples lack, in place of counting them as wrong."),
]
Merge = Annotated[
    Literal["mean", "max"], typer.Option("--merge", help="How the windows of a long text answer together.")
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Read the first window of a long text alone.")]
Length = Annotated[
    int | None, ranged(WINDOW, "--length", help="Tokens of a window; default: as many as the model can read.")
]

OF_TEXTS = ("text", "pair", "label", "separator", "header", "quoting")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """How files of labelled examples are read; None: as they look."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    separator: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    word: str | None = None
    tag: str | None = None

    def texts(
        self, paths: Sequence[str], *, kind: Kind | None = None, problems: Problems | None = None
    ) -> Dataset[TextExample]:
        self._refuse("word", "tag", why="name columns of words; texts have --text, --pair and --label")
        return read_texts(
            paths,
            Columns(text=self.text, pair=self.pair, label=self.label),
            kind=kind,
            separator=self.separator,
            options=TableOptions(header=self.header, quoting=self.quoting),
            problems=problems,
        )

    def tagged(self, paths: Sequence[str], *, problems: Problems | None = None) -> Dataset[TaggedExample]:
        self._refuse(*OF_TEXTS, why="are for texts; words have --word and --tag")
        return read_tagged(paths, word=self.word, tag=self.tag, problems=problems)

    def spanned(self, paths: Sequence[str], *, problems: Problems | None = None) -> Dataset[SpannedWords]:
        """Several levels of tags are columns with commas between them: ``--tag 2,3``."""
        self._refuse(*OF_TEXTS, why="are for texts; words have --word and --tag")
        return read_spanned(
            paths,
            word=_number(self.word, "--word"),
            tags=None if self.tag is None else [_number(one, "--tag") or 1 for one in self.tag.split(",")],
            problems=problems,
        )

    def read(
        self, task: Task, paths: Sequence[str], *, kind: Kind | None = None, problems: Problems | None = None
    ) -> Dataset[Any]:
        """What a task learns from."""
        if task == "classify":
            return self.texts(paths, kind=kind, problems=problems)
        if task == "tag":
            return self.tagged(paths, problems=problems)
        if task == "spans":
            return self.spanned(paths, problems=problems)
        if self != Labelled():
            raise UsageError("questions are read from SQuAD's JSON, or JSONL with question, context and answers")
        return read_questions(paths, problems=problems)

    def grouped(self, data: Dataset[Any], paths: Sequence[str], column: str) -> Dataset[Any]:
        """The same with the groups that a column names."""
        return with_groups(data, paths, column, TableOptions(header=self.header, quoting=self.quoting))

    def _refuse(self, *names: str, why: str) -> None:
        given = [f"--{name}" for name in names if getattr(self, name) is not None]
        if given:
            raise UsageError(f"{' and '.join(given)} {why}")


def _number(column: str | None, flag: str) -> int | None:
    if column is None:
        return None
    if not (number := digits(column.strip())):
        raise UsageError(f"{flag} {column:.60} is no column; spans are read from columns by number, from 1")
    return number
