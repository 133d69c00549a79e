"""What commands that read labelled data share (`data check`, `finetune`, `evaluate`): which columns, what labels.

reading = Labelled(text=text, pair=pair, label=label, separator=separator)
reading.read("classify", ["dev.tsv"], kind="multi-class")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from larvatus.cli.numbers import WINDOW, ranged
from larvatus.labelled.groups import with_groups
from larvatus.labelled.problems import Problems
from larvatus.labelled.reading import FileOptions
from larvatus.labelled.records import Dataset, Kind
from larvatus.tasks.registry import TASKS, TaskName

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
    TaskName | None,
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


@dataclass(frozen=True, kw_only=True)
class Labelled(FileOptions):
    """How files of labelled examples are read; None: as they look."""

    def read(
        self, task: str, paths: Sequence[str], *, kind: Kind | None = None, problems: Problems | None = None
    ) -> Dataset[Any]:
        """What a task learns from."""
        return TASKS[task].read(paths, self, kind=kind, problems=problems)

    def grouped(self, data: Dataset[Any], paths: Sequence[str], column: str) -> Dataset[Any]:
        """The same with the groups that a column names."""
        return with_groups(data, paths, column, self.table)
