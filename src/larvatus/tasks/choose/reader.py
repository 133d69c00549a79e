"""Contexts with endings from CSV, TSV, JSONL and Parquet; the right ending as a number, a letter or its own text.

    train = read_choices("train.jsonl.xz")
    print(train.describe())        # … read as: context = context, endings = endings, label = label (4 endings each)

    {"context": "He opened the door.", "endings": ["He flew away.", "He went in."], "label": 1}

Columns are recognised by their names, unless they are given:

| form | context | before every ending | endings | label |
| --- | --- | --- | --- | --- |
| SWAG | sent1 | sent2 | ending0, ending1, … | label |
| JSONL | context, or only question | question | endings: a list | label |
| RACE | article | question | options: a list | answer: A, B, … |
| CommonsenseQA | question | | choices: `{"label": […], "text": […]}` | answerKey: A, B, … |

A column before every ending (SWAG's `sent2`) is joined to each ending with a space. Empty cells at the end of a row are
endings that this example does not have. Errors are raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Remark, Row, shorten
from larvatus.data.labelled.tables import Columns, LabelledTable, TableOptions, named_column
from larvatus.data.labelled.texts import BadCell, BadLabel, TextFormat, cell_text
from larvatus.data.text.columns import IDS, LABELS, first_named, normalise_name
from larvatus.tasks.tables import read_tables, read_unlabelled, row_id, valid_rows

CONTEXTS = (
    *("context", "ctx", "sent1", "article", "passage", "premise", "story", "startphrase", "text", "sentence"),
    *("prompt", "goal", "question", "questionstem", "query"),
)
STARTS = ("sent2", "question", "query")
ENDINGS = ("endings", "choices", "options", "answers", "candidates", "alternatives")
RIGHT = ("label", "answerkey", "answer", "correct", "correctanswer", *LABELS)
SERIES = re.compile(r"(ending|choice|option|answer|candidate|alternative|solution|sol)(\d+|[a-z])")
"""Columns of single endings, by number or letter: ``ending0``, ``Option B``."""


@dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """The columns of one table, by name."""

    context: str
    start: str | None
    """Text that every ending begins with."""
    endings: tuple[str, ...]
    """One column that holds lists, or one for each ending."""
    listed: bool
    label: str | None
    id: str | None

    def describe(self) -> str:
        """``context = sent1, endings = sent2 + ending0 … ending3, label = label``"""
        endings = self.endings[0] if self.listed else f"{self.endings[0]} … {self.endings[-1]}"
        start = "" if self.start is None else f"{self.start} + "
        label = "" if self.label is None else f", label = {self.label}"
        return f"context = {self.context}, endings = {start}{endings}{label}"


def choice_columns(table: LabelledTable, asked: Columns = Columns(), *, labelled: bool = True) -> ChoiceColumns:
    """The requested columns (`text`: the context, `pair`: what endings begin with), the rest by their names."""
    context, start, label = (
        None if name is None else named_column(table, name, role)
        for role, name in (("context", asked.text), ("start of every ending", asked.pair), ("label", asked.label))
    )
    taken = {name for name in (context, start, label) if name is not None}
    endings, listed = _ending_columns(table, taken)
    free = tuple(name for name in table.columns if name not in taken.union(endings))
    if context is None:
        context = first_named(CONTEXTS, free)
        if context is None:
            raise DataError(f"{table.name}: no column is a context ({_names(table)}); name it: --text COLUMN")
        start = start or first_named(STARTS, tuple(name for name in free if name != context))
    free = tuple(name for name in free if name not in (context, start))
    label = (label or first_named(RIGHT, free)) if labelled else None
    if labelled and label is None:
        raise DataError(f"{table.name}: no column has the right ending ({_names(table)}); name it: --label COLUMN")
    return ChoiceColumns(
        context=context, start=start, endings=endings, listed=listed, label=label, id=first_named(IDS, free)
    )


def _ending_columns(table: LabelledTable, taken: set[str]) -> tuple[tuple[str, ...], bool]:
    """The column of lists, or the columns of single endings in their order."""
    free = tuple(name for name in table.columns if name not in taken)
    lists = first_named(ENDINGS, tuple(name for name in free if _holds_lists([row.get(name) for row in table.sample])))
    if lists is not None:
        return (lists,), True
    series: dict[str, list[tuple[int, str]]] = {}
    for name in free:
        if match := SERIES.fullmatch(normalise_name(name)):
            number = int(match[2]) if match[2].isdecimal() else ord(match[2])
            series.setdefault(match[1], []).append((number, name))
    longest = max(series.values(), key=len, default=[])
    if len(longest) < 2:
        wanted = "a list called endings, or columns ending0, ending1, …"
        raise DataError(f"{table.name}: no column holds endings ({_names(table)}); give {wanted}")
    return tuple(name for _, name in sorted(longest)), False


def has_endings(columns: Sequence[str], sample: Sequence[Row]) -> bool:
    """Whether columns are called as only multiple choice calls them. `answers` are those to questions about texts too.

    >>> has_endings(("sent1", "ending0", "ending1", "label"), ())
    True
    >>> has_endings(("context", "question", "answers"), [{"answers": {"text": ["Rome"], "answer_start": [4]}}])
    False
    """
    lists = [name for name in columns if normalise_name(name) in ("endings", "choices", "options")]
    single = [name for name in columns if (match := SERIES.fullmatch(normalise_name(name))) and match[1] == "ending"]
    return len(single) > 1 or any(_holds_lists([row.get(name) for row in sample]) for name in lists)


def _holds_lists(values: Sequence[Any]) -> bool:
    return any(isinstance(value, list | dict) for value in values)


def _names(table: LabelledTable) -> str:
    return f"it has {', '.join(table.columns)}" if table.header else "it has no header: name its columns in a first row"


SKEWED = 2.0
"""A position is reported if it is right this many times its even share."""
FEWEST_EXAMPLES = 20
"""Fewest examples for which shares of positions are reported."""


@dataclass(frozen=True, slots=True)
class ChoiceExample(LabelledExample):
    """A context and its endings; a model reads each ending with the context."""

    labels_are: ClassVar = "choices"
    stratified: ClassVar = "the place of the right ending"
    unit: ClassVar = "contexts"
    checked: ClassVar = True

    context: str
    endings: tuple[str, ...]
    label: int | None
    """The right one, from 0; None if unknown."""
    place: Place
    id: str | None = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The context with each ending."""
        return [(self.context, ending) for ending in self.endings]

    def reads(self) -> str:
        """The context, then each ending after a tab."""
        return "\t".join((self.context, *self.endings))

    def answer(self) -> object:
        return self.label

    def answer_shown(self) -> str:
        return "nothing" if self.label is None else shorten(self.endings[self.label])

    def key(self) -> Hashable:
        return self.context

    def strata(self) -> set[str]:
        return set() if self.label is None else {str(self.label)}

    def contents(self) -> list[Any]:
        return [self.context, list(self.endings), self.label]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterator[Remark]:
        """Places that are right too often, contexts of train in dev, numbers of endings that train lacks."""
        for name, part in parts.items():
            yield from _skewed(name, part)
        first = {example.context: example for example in parts["train"]}
        dev = parts.get("dev", ())
        leaks = [example for example in dev if example.context in first]
        yield Remark(
            "train contexts in dev",
            f"{len(leaks):,} examples of dev have a context of train: scores will flatter",
            [f"{leak.place}: {shorten(leak.context)} (first at {first[leak.context].place})" for leak in leaks],
        )
        sizes = {len(example.endings) for example in parts["train"]}
        unseen = [example for example in dev if len(example.endings) not in sizes]
        yield Remark(
            "numbers of endings unseen in train",
            f"{len(unseen):,} examples of dev have a number of endings that train lacks",
            [f"{example.place}: {len(example.endings)} endings" for example in unseen],
        )


def _skewed(name: str, part: Dataset[ChoiceExample]) -> Iterator[Remark]:
    """Scores do not depend on positions, but a model with equal scores answers the first, and people notice."""
    known = [(example, example.label) for example in part if example.label is not None]
    if len(known) < FEWEST_EXAMPLES:
        return
    for place in sorted({label for _, label in known}):
        right = [example for example, label in known if label == place]
        even = sum(1 / len(example.endings) for example, _ in known if place < len(example.endings))
        if len(right) > SKEWED * even:
            shares = f"{len(right) / len(known):.0%} of {name}, by chance in {even / len(known):.0%}"
            yield Remark(
                "places of right endings unbalanced",
                f"ending {place} is right in {shares}: a model that scores all alike would look good; shuffle them",
                [f"{example.place}: {shorten(example.endings[place])}" for example in right],
            )


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FEWEST = 2
"""Endings of an example."""


def read_choices(
    paths: Paths,
    columns: Columns = Columns(),
    *,
    options: TableOptions = TableOptions(),
    problems: Problems | None = None,
) -> Dataset[ChoiceExample]:
    """Labelled examples from one file or several."""
    examples, source, read_as = read_tables(
        paths,
        options,
        lambda table: choice_columns(table, columns),
        _examples,
        give="give labelled examples",
        problems=problems,
    )
    sizes = sorted({len(example.endings) for example in examples})
    counted = f"{sizes[0]} endings each" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} endings"
    return Dataset(tuple(examples), source, f"{read_as} ({counted})")


def read_unlabelled_choices(
    name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
) -> Iterator[ChoiceExample]:
    """Examples without labels, one at a time, from a file, or from standard input for ``-``."""
    shape = partial(choice_columns, asked=columns, labelled=False)
    return read_unlabelled(name, format, shape, _examples, things="contexts with endings", say=say)


def choice_of_row(row: Row, place: Place) -> ChoiceExample:
    """One example without a label, from a row that is in memory."""
    table = LabelledTable(str(place), "jsonl", tuple(row), True, (row,), iter([(place, row)]))
    (example,) = valid_rows(table, choice_columns(table, labelled=False), _examples, None)
    return example


def choice_of(
    context: str, endings: list[str], label: int | None, place: Place, id: str | None = None
) -> ChoiceExample:
    """An example that can be chosen from; `BadCell` where it cannot."""
    if len(endings) < FEWEST:
        said = "no ending" if not endings else "one ending only"
        raise BadCell(said, f"{said}: there is nothing to choose; give two or more")
    first: dict[str, int] = {}
    for number, ending in enumerate(endings):
        if first.setdefault(ending, number) != number:
            raise BadCell("same endings", f"endings {first[ending]} and {number} are the same: {shorten(ending)}")
    return ChoiceExample(context, tuple(endings), label, place, id)


def _examples(row: Row, shape: ChoiceColumns, place: Place) -> list[ChoiceExample]:
    """The one example of a row."""
    context = cell_text(row, shape.context)
    bare, names = _endings(row, shape)
    start = "" if shape.start is None else cell_text(row, shape.start).rstrip() + " "
    example = choice_of(context, [start + ending for ending in bare], None, place, row_id(row, shape.id))
    if shape.label is None:
        return [example]
    try:
        return [dataclasses.replace(example, label=right_ending(row.get(shape.label), bare, names))]
    except BadLabel as bad:
        raise BadCell("no right ending", str(bad)) from bad


def _endings(row: Row, shape: ChoiceColumns) -> tuple[list[str], list[str]]:
    """The endings, and the names that the row gives them, if any."""
    if not shape.listed:
        columns = list(shape.endings)
        while columns and row.get(columns[-1]) in (None, ""):  # this example has fewer
            columns.pop()
        return [cell_text(row, column) for column in columns], []
    (column,) = shape.endings
    given: Any = row.get(column)
    names: list[Any] = []
    if isinstance(given, Mapping):  # {"label": ["A", "B"], "text": ["…", "…"]}
        names, given = given.get("label") or [], given.get("text")
    elif isinstance(given, list) and given and all(isinstance(item, Mapping) for item in given):
        names, given = [item.get("label") for item in given], [item.get("text") for item in given]
    if not isinstance(given, list):
        raise BadCell("no endings", f"{column} is {type(given).__name__}, not a list of endings")
    endings = [cell_text({f"ending {number}": ending}, f"ending {number}") for number, ending in enumerate(given)]
    known = len(names) == len(endings) and all(isinstance(name, str) for name in names)
    return endings, names if known else []


def right_ending(value: Any, endings: list[str], names: list[str]) -> int:
    """The number of the right ending, as a number from 0, the name that the row gives it, its text, or its letter.

    >>> right_ending("B", ["no", "yes"], []), right_ending("yes", ["no", "yes"], []), right_ending(1, ["no", "yes"], [])
    (1, 1, 1)
    """
    there = f"there are {len(endings)}, from 0 to {len(endings) - 1}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < len(endings):
            raise BadLabel(f"the label is {value}, but of endings {there}")
        return value
    if not isinstance(value, str) or not value.strip():
        said = "missing" if value is None or value == "" else f"{type(value).__name__}, not a number or a text"
        raise BadLabel(f"the label is {said}; give the number of the right ending, {there}")
    word = value.strip()
    if word in names:
        return names.index(word)
    places = {number for number, ending in enumerate(endings) if ending.strip() == word}
    if word.isascii() and word.isdecimal() and len(word) < 6:
        places |= {int(word)} & set(range(len(endings)))
    elif len(word) == 1 and word in LETTERS[: len(endings)]:
        places.add(LETTERS.index(word))
    if len(places) > 1:
        first, second = sorted(places)[:2]
        raise BadLabel(f"the label {word!r} may mean ending {first} or ending {second}; give numbers in JSONL")
    if not places:
        raise BadLabel(f"the label {shorten(word)} is neither an ending nor the number of one: {there}")
    return places.pop()
