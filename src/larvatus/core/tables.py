"""Results as tables for people (text, Markdown, `rich`), and as rows (CSV, TSV, data frames).

>>> table = Table(("metric", "score"), [("accuracy", "0.5000")], title="on 2 examples")
>>> print(table)
on 2 examples
metric     score
accuracy  0.5000
>>> print(table.markdown())
| metric | score |
| --- | --- |
| accuracy | 0.5000 |

Cells are strings: the module that makes a table formats its numbers. `interfaces/cli/output.py` prints in colour.

Every Python result also offers rows: `model.predict(texts).to_pandas()`. A row is flat: text, numbers, truth values,
None, sometimes a short list. The rows of a list of results are numbered by `item`. `to_dict()` of a result, where it
has one, is the full form, which JSONL and Parquet files hold.

Text in a CSV cell that begins with = + - @, a tab or a line break may be a formula, which a spreadsheet runs when the
file is opened. Anybody may have written the text of a corpus, so `spreadsheet_cell` puts an apostrophe before it, the
mark of spreadsheets for "this is text" (OWASP, CSV injection). Numbers stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

from larvatus.core.errors import UsageError


class Cell(NamedTuple):
    text: str
    style: str = ""
    """Style on a terminal: dim, bold green, yellow. Markdown shows bold cells in bold."""


class Column(NamedTuple):
    name: str
    right: bool = True
    """Align to the right, as numbers are."""
    whole: bool = False
    """Never break its cells, on a narrow terminal either."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns, with an optional title above and notes below."""

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[str | Cell]]
    _: KW_ONLY
    title: str = ""
    left: int = 1
    """Number of leading columns that are aligned to the left; a `Column` states its own alignment."""
    notes: Sequence[str | Cell] = ()
    blank_before: bool = False
    """Print an empty line before the table."""

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns, each with its alignment."""
        return tuple(
            column if isinstance(column, Column) else Column(column, right=number >= self.left)
            for number, column in enumerate(self.columns)
        )

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, each cell with its style."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def lines(self) -> list[str]:
        """Column names and rows as aligned lines, without title and notes."""
        texts = [[head.name for head in self.heads], *([cell.text for cell in row] for row in self.cells)]
        widths = [max(len(row[place]) for row in texts if place < len(row)) for place in range(len(self.heads))]
        sides = [str.rjust if head.right else str.ljust for head in self.heads]
        return [
            "  ".join(side(text, width) for side, text, width in zip(sides, row, widths, strict=False)).rstrip()
            for row in texts
        ]

    def __str__(self) -> str:
        notes = [f"note: {note if isinstance(note, str) else note.text}" for note in self.notes]
        return "\n".join([*([self.title] if self.title else []), *self.lines(), *notes])

    def markdown(self) -> str:
        """Column names and rows as a Markdown table. Markdown drops indentation, so indented cells begin with "…"."""
        rows = [[_markdown_cell(cell) for cell in row] for row in self.cells]
        return markdown_table([escaped(head.name) for head in self.heads], rows)


ReportPart = str | Table
"""A line or a table of a report."""


def render_text(parts: Iterable[ReportPart]) -> str:
    """Lines and tables of a report as plain text.

    >>> print(render_text(["on 2 examples", Table(("metric", "score"), [("accuracy", "0.5000")])]))
    on 2 examples
    metric     score
    accuracy  0.5000
    """
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        else:
            lines += [*([""] if part.blank_before else []), str(part)]
    return "\n".join(lines)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are escaped already.

    >>> print(markdown_table(["", "score"], [["a", "1"]]))
    | | score |
    | --- | --- |
    | a | 1 |
    """
    head = f"| {' | '.join(heads)} |".replace("|  |", "| |").replace("|  |", "| |")
    return "\n".join([head, "| --- " * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def _markdown_cell(cell: Cell) -> str:
    text = escaped(cell.text)
    text = f"… {text.strip()}" if text.startswith("  ") else text
    return f"**{text}**" if cell.style.startswith("bold") else text


def escaped(text: str) -> str:
    """Text whose bars and asterisks mean nothing in Markdown."""
    return text.replace("|", "\\|").replace("*", "\\*")


# Results as rows.

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
