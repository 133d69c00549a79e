"""Which column is the text, which its pair, which what is to be written: asked for, known by name, or guessed.

    writing_columns(open_table("summaries.csv"), WritingFiles())     # text = document, target = summary

Names come first: source and target, input and output, document and summary, and those of labelled texts. Of two columns
without such names the first is the text; what else there is, is guessed as for classification
(`data/labelled/tables.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Column, FileOptions
from larvatus.data.labelled.tables import Columns, LabelledTable, TableOptions, find_columns, named_column
from larvatus.data.text.columns import IDS, LABELS, PAIRS, TEXTS, first_named, normalise_name

TARGETS = ("target", "targettext", "output", "summary", "highlights", "translation", "response", "completion", "reply")
ANSWERS = ("answers", "answer")
SOURCES = ("source", "sourcetext", "input", "inputtext", "article", "dialogue", "prompt")


class WritingFiles(FileOptions):
    """Tables of texts and of what is to be written for them, or SQuAD's JSON."""

    things: ClassVar[str] = "texts to write"
    refusal: ClassVar[str] = "{flags} are for {things}; text to text has --text, --pair and --target"

    text: Column = None
    """Column of the text, by name or number; default: guessed."""
    pair: Column = None
    """Column of the second text of a pair; default: guessed."""
    target: Column = None
    """Column of what is to be written, a text or a label; default: guessed."""
    header: bool | None = None
    """Whether the first row names columns; default: as it looks."""
    quoting: bool | None = None
    """Whether quotes hold cells together; default: only in CSV."""

    @property
    def table(self) -> TableOptions:
        return TableOptions(header=self.header, quoting=self.quoting)


@dataclass(frozen=True, kw_only=True)
class WritingColumns:
    """The columns of one table."""

    text: str
    pair: str | None
    target: str | None
    id: str | None
    named: bool
    """Whether the file named its columns itself."""

    @property
    def parts(self) -> tuple[str, str] | None:
        """What the texts of a pair are called."""
        return (self.text, self.pair) if self.named and self.pair is not None else None

    def describe(self) -> str:
        """``text = document, target = summary``"""
        before = "" if self.named else "column "
        roles = {"text": self.text, "pair": self.pair, "target": self.target}
        return ", ".join(f"{role} = {before}{name}" for role, name in roles.items() if name is not None)


def writing_columns(
    table: LabelledTable, asked: WritingFiles = WritingFiles(), *, labelled: bool = True
) -> WritingColumns:
    """The columns as asked for, the rest as guessed. Without `labelled` no target is wanted."""
    text, pair, target = (
        None if name is None else named_column(table, name, role)
        for role, name in (("text", asked.text), ("pair", asked.pair), ("target", asked.target))
    )
    named = table.columns if table.header else ()
    identifier = first_named(IDS, tuple(name for name in named if name not in (text, pair, target)))
    free = tuple(name for name in table.columns if name not in (text, pair, target, identifier))
    target = target or _target(table, free, text=text)
    free = tuple(name for name in free if name != target)
    if text is None:
        text, guessed = _texts(table, free, target=target)
        pair = pair or guessed
    if labelled and target is None:
        raise DataError(
            f"{table.name}: no column looks like what is to be written (it has {', '.join(table.columns)}); name it: "
            "--target COLUMN"
        )
    return WritingColumns(text=text, pair=pair, target=target if labelled else None, id=identifier, named=table.header)


def _target(table: LabelledTable, free: tuple[str, ...], *, text: str | None) -> str | None:
    """Column of the target text: by its name; else the last of the columns, where there is no choice."""
    if table.header and (known := first_named((*TARGETS, *LABELS, *ANSWERS), free)) is not None:
        return known
    if len(free) == (2 if text is None else 1) and not _is_pair(free):
        return free[-1]
    return None


def _is_pair(names: tuple[str, ...]) -> bool:
    return tuple(map(normalise_name, names)) in PAIRS


def _texts(table: LabelledTable, free: tuple[str, ...], *, target: str | None) -> tuple[str, str | None]:
    if table.header:
        named = {normalise_name(name): name for name in reversed(free)}
        for first, second in PAIRS:
            if first in named and second in named:
                return named[first], named[second]
        if (known := first_named((*SOURCES, *TEXTS), free)) is not None:
            return known, None
    if len(free) == 1:
        return free[0], None
    guessed = find_columns(table, Columns(label=target), labelled=target is not None)
    return guessed.text, guessed.pair
