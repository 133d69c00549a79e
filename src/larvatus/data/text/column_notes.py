"""What readers say of the columns that they chose: to a command's sink, or to the log of Python's `logging`.

    with column_notes_to(print):
        …                       # news.csv: 2,000 rows, text from column 'text' (title, label ignored); choose with …

Text is read several times by some jobs, and from many files alike: files with the same columns are reported once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

LOG = logging.getLogger("larvatus")
SHOWN = 6
"""Names of ignored columns that are listed."""
_MOST = 1_024  # notes that are remembered

_sinks: list[Callable[[str], None]] = []
_said: set[tuple[str, ...]] = set()


@contextmanager
def column_notes_to(sink: Callable[[str], None]) -> Iterator[None]:
    """Send notes of all threads to `sink` while this runs, each once, whatever was reported before."""
    before = set(_said)
    _said.clear()
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.pop()
        _said.clear()
        _said.update(before)


def note(line: str, key: Sequence[str] = ()) -> None:
    """Report a line, once for each key (by default, the line itself)."""
    said = tuple(key) or (line,)
    if said in _said:
        return
    if len(_said) >= _MOST:
        _said.clear()
    _said.add(said)
    (_sinks[-1] if _sinks else LOG.warning)(line)


def note_column(name: str, rows: str, text: str, columns: Sequence[str], *, header: bool) -> None:
    """Report the guess of a text column; a command reports files with the same columns once."""
    ignored = [column for column in columns if column != text]
    shown = ", ".join(ignored[:SHOWN]) + (", …" if len(ignored) > SHOWN else "")
    column = f"column {text!r}" if header else f"column {text} (it has no header)"
    others = f" ({shown} ignored)" if ignored else ""
    key = (text, *columns) if _sinks else (name, text, *columns)
    note(f"{name}: {rows}, text from {column}{others}; choose with --text COLUMN", key)


def note_blank_rows(name: str, count: int) -> None:
    """Report rows whose text cell is empty."""
    note(f"{name}: {count:,} {'row' if count == 1 else 'rows'} without text skipped")
