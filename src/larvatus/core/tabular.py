"""Results as rows: what every Python result offers, and what CSV and TSV files hold.

    model.fill("The [MASK] of the river was wide.").to_pandas()
    model.predict(texts).to_dicts()            # a list of results: the rows of all, numbered by `item`

A row is flat: text, numbers, truth values, None, sometimes a short list. `to_dict()` of a result, where it has one, is
the full form, which JSONL and Parquet files hold.

In a CSV cell, text that begins with = + - @, a tab or a line break may be a formula, which a spreadsheet runs when the
file is opened. Text of a corpus can be anybody's, so `spreadsheet_cell` puts an apostrophe before it, the mark of
spreadsheets for "this is text" (OWASP, CSV injection).

    spreadsheet_cell("=HYPERLINK(…)")        "'=HYPERLINK(…)": text
    spreadsheet_cell("-0.5"), spreadsheet_cell(-0.5)  unchanged: a number is no formula
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar

from larvatus.core.errors import UsageError

Row = dict[str, Any]


class HasRows(Protocol):
    """Anything with rows."""

    def to_dicts(self) -> list[Row]: ...


T = TypeVar("T", bound=HasRows)


class Tabular:
    """A result that can be shown as rows."""

    __slots__ = ()

    @abstractmethod
    def to_dicts(self) -> list[Row]:
        """Rows as dictionaries with the same keys, as far as they have them."""

    def to_pandas(self) -> Any:
        """Rows as a `pandas.DataFrame`; pandas must be installed."""
        return data_frame(self.to_dicts())


class ResultList(list[T], Tabular):
    """Results of several texts, in their order: a list whose rows can be taken together."""

    def to_dicts(self) -> list[Row]:
        """Rows of all results; `item` is the number of the text that a row is of, from 0."""
        numbered = ((item, row) for item, result in enumerate(self) for row in result.to_dicts())
        return [{"item": item, **{name: row[name] for name in row if name != "item"}} for item, row in numbered]


def data_frame(rows: Sequence[Row]) -> Any:
    """A `pandas.DataFrame` of rows; columns in the order in which rows first have them."""
    try:
        pd = import_module("pandas")
    except ImportError as fault:
        raise UsageError("to_pandas() needs pandas, which is not installed; run: pip install pandas") from fault
    return pd.DataFrame(list(rows), columns=list(columns_of(rows)))


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """All keys of rows, in the order in which they first occur."""
    return tuple(dict.fromkeys(name for row in rows for name in row))


def flatten(record: Mapping[str, Any], prefix: str = "") -> Row:
    """A record with its inner records as separate columns.

    >>> flatten({"label": "good", "probabilities": {"good": 0.9, "bad": 0.1}})
    {'label': 'good', 'probabilities.good': 0.9, 'probabilities.bad': 0.1}
    """
    row: Row = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            row |= flatten(value, f"{prefix}{name}.")
        else:
            row[f"{prefix}{name}"] = value
    return row


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def spreadsheet_cell(value: Any) -> Any:
    """A value to be written to a table for people; only text that would be a formula is changed."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
