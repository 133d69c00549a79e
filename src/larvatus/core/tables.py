"""Tables for people: one record, rendered as text, as Markdown, or by `rich` on a terminal.

>>> table = Table(("metric", "score"), [("accuracy", "0.5000")], title="on 2 examples")
>>> print(table)
on 2 examples
metric     score
accuracy  0.5000
>>> print(table.markdown())
| metric | score |
| --- | --- |
| accuracy | 0.5000 |

Cells are strings: the module that makes a table formats its numbers. `interfaces/cli/tables.py` prints in colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple


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
