"""Which column of a table holds the text, by the names of its columns and then by their contents.

    text_columns(table)          # ("premise", "hypothesis"); ("body", None)

Names first (`column_names.py`): premise and hypothesis, sentence1 and sentence2, text, review, …. Where names do not
tell, the column of the longest values is the text, and a second one like it its pair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import digits
from larvatus.data.text.column_names import IDS, LABELS, PAIRS, TEXTS, first_of, plain
from larvatus.data.text.header import is_number


class SampledTable(Protocol):
    """Columns of a table and its first rows."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def header(self) -> bool: ...
    @property
    def sample(self) -> Sequence[dict[str, Any]]: ...


@dataclass(frozen=True)
class SampledRows:
    """The first rows of a table, a `SampledTable`."""

    name: str
    columns: tuple[str, ...]
    header: bool
    sample: list[dict[str, Any]]


def chosen_column(name: str, columns: Sequence[str], asked: str) -> str:
    """The column of that name, or of that number from 1; one that is not there is refused with those that are."""
    if asked in columns:
        return asked
    number = digits(asked) if asked.isdigit() else None
    if number is not None and 1 <= number <= len(columns):
        return columns[number - 1]
    shown = ", ".join(columns[:40]) + (", …" if len(columns) > 40 else "")
    raise UsageError(f"{name} has no column {asked!r:.60} (it has {shown}); name one of these: --text COLUMN")


def document_column(table: SampledTable) -> str:
    """The column that the documents of a table are read from: one called text, otherwise as `text_columns` guesses.

    Of a pair the first is taken, unless the second is twice as long: of question and context, the context.
    """
    named = table.columns if table.header else ()
    if (text := first_of(("text",), named)) is not None and all_hold(table, text, _is_text):
        return text
    taken = [name for name in (first_of(IDS, named), first_of(LABELS, named)) if name is not None]
    first, second = text_columns(table, taken if len(taken) < len(table.columns) else ())
    if second is not None and _mean_length(table, second) >= 2 * _mean_length(table, first):
        return second
    return first


def text_columns(table: SampledTable, taken: Collection[str] = ()) -> tuple[str, str | None]:
    named = {plain(name): name for name in reversed(table.columns) if name not in taken} if table.header else {}
    for first, second in PAIRS:
        if first in named and second in named:
            return named[first], named[second]
    for name in TEXTS:
        if name in named and all_hold(table, named[name], _is_text):
            return named[name], None
    lengths = {
        name: _mean_length(table, name)
        for name in table.columns
        if name not in taken and all_hold(table, name, _is_text) and not all_hold(table, name, is_numeral)
    }
    if not lengths:
        raise DataError(
            f"{table.name}: no column holds text (it has {', '.join(table.columns)}); name it: --text COLUMN"
        )
    longest = max(lengths, key=lambda name: lengths[name])
    others = [name for name in lengths if name != longest and _like(table, name, lengths[name], lengths[longest])]
    if not others:
        return longest, None
    other = max(others, key=lambda name: lengths[name])
    first, second = sorted((longest, other), key=table.columns.index)
    return first, second


def column_values(table: SampledTable, name: str) -> list[Any]:
    return [row.get(name) for row in table.sample]


def all_hold(table: SampledTable, name: str, holds: Callable[[Any], bool]) -> bool:
    """Whether something holds of all values of a column that are there."""
    values = [value for value in column_values(table, name) if value is not None and value != ""]
    return bool(values) and all(holds(value) for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_numeral(value: Any) -> bool:
    return is_number(value) if isinstance(value, str) else isinstance(value, int | float)


def _mean_length(table: SampledTable, name: str) -> float:
    return sum(len(value or "") for value in column_values(table, name)) / len(table.sample)


def _like(table: SampledTable, name: str, length: float, longest: float) -> bool:
    """Whether a column is text like the longest one: not short, not of few values, words or an unspaced script."""
    values = column_values(table, name)
    distinct = len(set(values))
    if length < longest / 5 or (len(values) > 40 and distinct < max(20, len(values) / 20)):
        return False
    spaced = sum(" " in (value or "").strip() for value in values) > len(values) / 2
    return spaced or sum(not (value or "").isascii() for value in values) > len(values) / 2
