"""Which columns of a table hold context, endings and label of multiple choice: by their names, or as asked for.

    choice_columns(table, Columns(label="gold"))        # context = sent1, start = sent2, endings = ending0 … ending3

| form | context | before every ending | endings | label |
| --- | --- | --- | --- | --- |
| SWAG | sent1 | sent2 | ending0, ending1, … | label |
| JSONL | context, or question alone | question | endings: a list | label |
| RACE | article | question | options: a list | answer: A, B, … |
| CommonsenseQA | question | | choices: `{"label": […], "text": […]}` | answerKey: A, B, … |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Row
from larvatus.data.labelled.tables import Columns, LabelledTable, named_column
from larvatus.data.text.columns import IDS, LABELS, first_named, normalise_name

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
    """What every ending begins with."""
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
    """The columns as asked for (`text`: the context, `pair`: what endings begin with), the rest by their names."""
    context, start, label = (
        None if name is None else named_column(table, name, role)
        for role, name in (("context", asked.text), ("start of every ending", asked.pair), ("label", asked.label))
    )
    taken = {name for name in (context, start, label) if name is not None}
    endings, listed = _endings(table, taken)
    free = tuple(name for name in table.columns if name not in taken.union(endings))
    if context is None:
        context = first_named(CONTEXTS, free)
        if context is None:
            raise DataError(f"{table.name}: no column is a context ({_names(table)}); name it: --text COLUMN")
        start = start or first_named(STARTS, tuple(name for name in free if name != context))
    free = tuple(name for name in free if name not in (context, start))
    label = (label or first_named(RIGHT, free)) if labelled else None
    if labelled and label is None:
        raise DataError(f"{table.name}: no column says the right ending ({_names(table)}); name it: --label COLUMN")
    return ChoiceColumns(
        context=context, start=start, endings=endings, listed=listed, label=label, id=first_named(IDS, free)
    )


def _endings(table: LabelledTable, taken: set[str]) -> tuple[tuple[str, ...], bool]:
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
