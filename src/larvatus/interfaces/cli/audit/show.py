"""Tables of an audit on the terminal: as wide as they are, so that nothing of a figure is cut off."""

from __future__ import annotations

from collections.abc import Iterable

from larvatus.core.errors import printable
from larvatus.evaluation.audit.tables import Shown


def show_tables(tables: Iterable[Shown], notes: Iterable[str] = ()) -> None:
    """Each with its notes below it, then those of the whole."""
    for shown in tables:
        for line in str(shown).split("\n"):
            print(printable(line))
        print()
    for note in notes:
        print(printable(f"note: {note}"))
