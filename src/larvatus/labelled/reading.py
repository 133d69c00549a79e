"""How files of labelled examples are read: which columns, as the command line names them; None: as they look.

    FileOptions(text="review", label="stars")

Each reader refuses the names that are none of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from larvatus.errors import UsageError
from larvatus.labelled.columns import Columns
from larvatus.labelled.tables import TableOptions
from larvatus.labelled.texts import Paths

__all__ = ["FileOptions", "Paths"]


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    separator: str | None = None
    """What parts several labels in a cell."""
    header: bool | None = None
    """Whether the first row names columns."""
    quoting: bool | None = None
    """Whether quotes hold cells together."""
    word: str | None = None
    tag: str | None = None

    @property
    def columns(self) -> Columns:
        return Columns(text=self.text, pair=self.pair, label=self.label)

    @property
    def table(self) -> TableOptions:
        return TableOptions(header=self.header, quoting=self.quoting)

    def only(self, *names: str, why: str) -> None:
        """Refuse all names but these."""
        given = [field.name for field in fields(FileOptions) if field.name not in names]
        self.refuse([name for name in given if getattr(self, name) is not None], why=why)

    def refuse(self, names: Sequence[str], *, why: str) -> None:
        if names:
            raise UsageError(f"{' and '.join(f'--{name}' for name in names)} {why}")
