"""Texts with their targets from CSV, TSV, JSONL, Parquet, and SQuAD's JSON.

    train = read_pairs("train.tsv")
    print(train.describe())        # … read as: text = document, target = summary

    {"text": "The house is small.", "target": "Das Haus ist klein."}

Columns are given, or recognised by their names: source and target, input and output, document and summary, and those of
labelled texts. Of two columns with other names the first is the text; anything else is guessed as for classification
(`data/text/columns.py`).

A target may be a list: any of them is right, and the first is trained on. Labels are texts like any other; if there are
few different ones, they are classes. Errors are raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Column, FileOptions, Paths
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Row, shorten
from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tables import (
    ENDINGS,
    Columns,
    LabelledTable,
    ending,
    find_columns,
    named_column,
    open_table,
)
from larvatus.data.labelled.texts import BadCell, TextFormat, cell_text
from larvatus.data.text.columns import IDS, LABELS, PAIRS, TEXTS, first_named, normalise_name
from larvatus.tasks.tables import TABLES, read_files, read_unlabelled, row_id, valid_rows

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
    """Whether the first row names columns; default: detected."""
    quoting: bool | None = None
    """Whether quotes hold cells together; default: only in CSV."""


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
        """Names of the texts of a pair."""
        return (self.text, self.pair) if self.named and self.pair is not None else None

    def describe(self) -> str:
        """``text = document, target = summary``"""
        before = "" if self.named else "column "
        roles = {"text": self.text, "pair": self.pair, "target": self.target}
        return ", ".join(f"{role} = {before}{name}" for role, name in roles.items() if name is not None)


def writing_columns(
    table: LabelledTable, asked: WritingFiles = WritingFiles(), *, labelled: bool = True
) -> WritingColumns:
    """The requested columns, the rest guessed; without `labelled` no target is needed."""
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


@dataclass(frozen=True, slots=True)
class WritingExample(LabelledExample):
    """A text or a pair with what is to be written for it."""

    labels_are: ClassVar = "texts"
    checked: ClassVar = True

    text: str
    pair: str | None
    targets: tuple[str, ...]
    """Right texts; the first is trained on. Empty for unlabelled examples."""
    place: Place
    id: str | None = None
    parts: tuple[str, str] | None = None
    """Names of the two texts, if the file names its columns."""
    few: bool = False
    """Whether its target is one of a few, which are then classes."""

    def names(self) -> Iterable[str]:
        return self.targets[:1] if self.few else ()

    def reads(self) -> str:
        """The text, with its pair after a tab."""
        return self.text if self.pair is None else f"{self.text}\t{self.pair}"

    def answer(self) -> object:
        return self.targets or None

    def answer_shown(self) -> str:
        return shorten(" / ".join(self.targets)) if self.targets else "nothing"

    def contents(self) -> list[Any]:
        return [self.text, self.pair, list(self.targets)]


MOST_CLASSES = 50
"""Different targets beyond which they are not taken for classes."""
LONGEST_CLASS = 60
"""Characters of a class."""
QUESTION = ("question", "context")
"""Names of the two texts of SQuAD."""


def read_pairs(
    paths: Paths, files: WritingFiles = WritingFiles(), *, problems: Problems | None = None
) -> Dataset[WritingExample]:
    """Texts with their targets from one file or several."""

    def read_file(name: str) -> tuple[str, str, Iterator[WritingExample]]:
        if _is_squad(name):
            return name, "questions about passages, target = answer", _questions(name, problems)
        table = open_table(name, files.table, problems)
        shape = writing_columns(table, files)
        return name, shape.describe(), valid_rows(table, shape, _examples, problems)

    give = "give texts with what is to be written"
    examples, source, read_as = read_files(paths, read_file, give=give, problems=problems)
    if len({example.pair is None for example in examples}) > 1:
        raise DataError(f"{source}: some files hold single texts and some pairs; fine-tune on one of the two")
    few = _are_few(examples)
    said = f" ({len({example.targets for example in examples})} different ones)" if few else ""
    marked = tuple(dataclasses.replace(example, few=few) for example in examples)
    return Dataset(marked, source, f"{read_as}{said}")


def read_unlabelled_pairs(
    name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
) -> Iterator[WritingExample]:
    """Texts of a table, one at a time; targets that it holds are not read."""
    text, pair = (None if column is None else str(column) for column in (columns.text, columns.pair))
    shape = partial(writing_columns, asked=WritingFiles(text=text, pair=pair), labelled=False)
    return read_unlabelled(name, format, shape, _examples, things="texts to write for", say=say)


def is_table(name: str, format: TextFormat | None) -> bool:
    """Whether a file has columns."""
    return ending(name) in ENDINGS if format is None else format in TABLES


def _examples(row: Row, shape: WritingColumns, place: Place) -> list[WritingExample]:
    """The one example of a row."""
    text = cell_text(row, shape.text)
    pair = None if shape.pair is None else cell_text(row, shape.pair)
    targets = () if shape.target is None else _targets(row, shape.target)
    return [WritingExample(text, pair, targets, place, row_id(row, shape.id), parts=shape.parts)]


def _targets(row: Row, column: str) -> tuple[str, ...]:
    """A text, several, or answers as SQuAD has them."""
    given: Any = row.get(column)
    if isinstance(given, Mapping):
        given = given.get("text")
    if not isinstance(given, list):
        return (cell_text({column: given}, column),)
    if not given:
        raise BadCell("empty text", f"{column} is empty; drop the row, or give it a text")
    texts = (each.get("text") if isinstance(each, Mapping) else each for each in given)
    return tuple(dict.fromkeys(cell_text({column: text}, column) for text in texts))


def _is_squad(name: str) -> bool:
    """Whether a file is SQuAD's JSON, and not a row a line."""
    if name == "-" or ending(name) != ".json":
        return False
    try:
        return "data" in open_table(name).columns
    except DataError:
        return True


def _questions(name: str, problems: Problems | None) -> Iterator[WritingExample]:
    for example in read_questions(name, problems=problems):
        if example.impossible:
            fault(problems, "no answer", example.place, "it has no answer, so there is nothing to write; drop it")
            continue
        golds = tuple(dict.fromkeys(example.golds))
        yield WritingExample(example.question, example.passage, golds, example.place, example.id, parts=QUESTION)


def _are_few(examples: list[WritingExample]) -> bool:
    """Whether targets are classes: few, short, and each seen about twice or more."""
    targets = {example.targets for example in examples}
    short = all(len(target) == 1 and len(target[0]) <= LONGEST_CLASS for target in targets)
    return short and 2 <= len(targets) <= min(MOST_CLASSES, len(examples) // 2)
