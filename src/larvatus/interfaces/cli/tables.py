"""Tables and reports on a terminal: the plain records of `core/tables.py`, printed by `rich`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import printable
from larvatus.core.tables import ReportPart, Table
from larvatus.training.engine.reporter import rich_table

WIDE = 200
"""Characters of a line where the output is not a terminal."""


def wide_console(width: int = WIDE, **settings: Any) -> Console:
    """A console of the terminal's width, or of `width` where the output is not a terminal."""
    terminal = Console(highlight=False, **settings)
    return terminal if terminal.is_terminal else Console(width=width, highlight=False, **settings)


def print_json(value: object) -> None:
    """Print a result for programs, indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def show_part(out: Console, part: ReportPart) -> None:
    """Print a line or a table of a report."""
    if isinstance(part, str):
        out.print(escape(part), soft_wrap=True, highlight=False)
        return
    if part.blank_before:
        out.print()
    out.print(rich_table(part, wrap=True))


def show_report(out: Console, parts: Iterable[ReportPart]) -> None:
    for part in parts:
        show_part(out, part)


def show_tables(tables: Iterable[Table], notes: Iterable[str] = ()) -> None:
    """Print tables as plain text, uncut however wide, each with its notes below it; then the notes on all of them."""
    for table in tables:
        for line in str(table).split("\n"):
            print(printable(line))
        print()
    for note in notes:
        print(printable(f"note: {note}"))
