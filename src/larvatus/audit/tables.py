"""Tables of an audit: rows of words that a terminal, a notebook and a page lay out as they like.

>>> print(Shown("exposure", ("repeats", "bits"), (("1", "2.1"), ("16", "13.3"))))
exposure
repeats  bits
      1   2.1
     16  13.3
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 0
    """How many columns, the first, hold words and not numbers: those are set to the left."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know."""

    def __str__(self) -> str:
        table = [self.columns, *self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if column < self.words else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join([self.title, *lines, *(f"note: {note}" for note in self.notes)])


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def between(low: float | None, high: float | None, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval as tables write it.

    >>> between(0.4812, 0.5301), between(0.1, 0.25, digits=1, times=100)
    ('0.481–0.530', '10.0–25.0')
    """
    return "–" if low is None or high is None else f"{times * low:.{digits}f}–{times * high:.{digits}f}"


def signed_between(low: float, high: float, *, digits: int = 3, times: float = 1.0) -> str:
    """The same of a difference: ``−1.2 to +3.4``."""
    return f"{times * low:+.{digits}f} to {times * high:+.{digits}f}"
