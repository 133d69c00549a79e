"""Which column is the text, which its pair, which the label: asked for by name or number, or guessed and reported.

By name first (`column_names`): premise and hypothesis, sentence1 and sentence2, label, score, Quality, …. What names do
not tell, contents do: the column of the longest values is the text, a second one like it its pair, and the column of
the fewest values that change from row to row the label. So CoLA's four columns without a header are read as
``text = column 4, label = column 2``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from larvatus.core.errors import DataError, did_you_mean
from larvatus.core.ranges import digits
from larvatus.data.labelled.tables import LabelledTable
from larvatus.data.text.columns import (
    IDS,
    LABELS,
    all_hold,
    column_values,
    first_named,
    is_numeral,
    normalise_name,
    text_columns,
)

FEW = 200
"""Classes beyond which a column is not guessed to be the label."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns by name, or by number from 1; None: guessed. Where `text` is given alone, there is no pair."""

    text: str | int | None = None
    pair: str | int | None = None
    label: str | int | None = None
    id: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """The columns of one table, by name."""

    text: str
    pair: str | None
    label: str | None
    id: str | None

    def describe(self, table: LabelledTable, said_of_label: str = "") -> str:
        """``text = sentence1, pair = sentence2, label = label (2 classes)``"""
        parts = {"text": self.text, "pair": self.pair, "label": self.label}
        prefix = "" if table.header else "column "
        told = [f"{role} = {prefix}{name}" for role, name in parts.items() if name is not None]
        return ", ".join(told) + (f" ({said_of_label})" if said_of_label and self.label is not None else "")


def find_columns(table: LabelledTable, asked: Columns = Columns(), *, labelled: bool = True) -> ColumnRoles:
    """The columns as asked for, the rest as guessed. Without `labelled` no label is looked for."""
    text, pair, label, identifier = (
        None if name is None else named_column(table, name, role)
        for role, name in (("text", asked.text), ("pair", asked.pair), ("label", asked.label), ("id", asked.id))
    )
    named = table.columns if table.header else ()
    identifier = identifier or first_named(IDS, named)
    if labelled and label is None:
        label = first_named(LABELS, tuple(name for name in named if name not in (text, pair)))
    if text is None:
        text, guessed = text_columns(table, taken={name for name in (pair, label, identifier) if name})
        pair = pair or guessed
    if labelled and label is None:
        label = _label(table, taken={name for name in (text, pair, identifier) if name})
    return ColumnRoles(text=text, pair=pair, label=label if labelled else None, id=identifier)


def named_column(table: LabelledTable, asked: str | int, role: str) -> str:
    """The column of that name, or of that number from 1."""
    columns = table.columns
    if isinstance(asked, str) and asked in columns:
        return asked
    if isinstance(asked, int) or asked.isdigit():
        number = asked if isinstance(asked, int) else digits(asked) or 0
        if not 1 <= number <= len(columns):
            raise DataError(f"{table.name} has {len(columns)} columns, no column {asked!s:.40} for the {role}")
        return columns[number - 1]
    close = [column for column in columns if normalise_name(column) == normalise_name(asked)]
    hint = f"; did you mean {close[0]}?" if close else did_you_mean(asked, columns)
    if not table.header:
        hint = f"; it has no header: give a number, 1 to {len(columns)}"
    raise DataError(f"{table.name} has no column {asked!r} for the {role}{hint}")


def _label(table: LabelledTable, taken: set[str]) -> str:
    rest = [name for name in table.columns if name not in taken]
    candidates = [name for name in rest if _could_be_label(table, name)] or (rest if len(rest) == 1 else [])
    if not candidates:
        numbers = [name for name in rest if all_hold(table, name, is_numeral)]
        candidates = [name for name in numbers if all_hold(table, name, _has_point)]
    if not candidates:
        raise DataError(
            f"{table.name}: no column looks like a label (it has {', '.join(table.columns)}); name it: --label COLUMN"
        )
    return min(candidates, key=lambda name: (*_rank(table, name), -table.columns.index(name)))


def _has_point(value: Any) -> bool:
    return "." in value if isinstance(value, str) else isinstance(value, float)


def _could_be_label(table: LabelledTable, name: str) -> bool:
    values = column_values(table, name)
    if any(isinstance(value, list) for value in values):
        return all(isinstance(value, list) and all(isinstance(item, str | int) for item in value) for value in values)
    if any(isinstance(value, dict) for value in values):
        return False
    distinct = len(set(values))
    return 2 <= distinct <= max(2, min(FEW, len(values) // 2))


def _rank(table: LabelledTable, name: str) -> tuple[bool, bool, int]:
    """Labels have no empty cells, change from row to row (a source comes in runs), and are few."""
    values = [str(value) for value in column_values(table, name)]
    counts = Counter(values)
    by_chance = 1 - sum((count / len(values)) ** 2 for count in counts.values())
    changes = sum(value != other for value, other in pairwise(values)) / max(1, len(values) - 1)
    return "" in counts or "None" in counts, changes < by_chance / 4, len(counts)
