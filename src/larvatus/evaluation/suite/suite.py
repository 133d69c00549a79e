"""A suite: parts in the order of its table, and published figures for its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.evaluation.suite.figures import PublishedFigure
from larvatus.evaluation.suite.part import SuitePart


@dataclass(frozen=True, kw_only=True)
class Suite:
    name: str
    parts: tuple[SuitePart, ...]
    references: Mapping[str, Sequence[PublishedFigure]] = field(default_factory=dict)
    """Published figures by figure id."""

    def chosen(self, only: Sequence[str] = (), leave_out: Sequence[str] = ()) -> list[SuitePart]:
        """The requested parts, in the order of the table."""
        names = [part.name for part in self.parts]
        for name in (*only, *leave_out):
            if name not in names:
                wrong = f"the suite {self.name} has no part {name!r}{did_you_mean(name, names)}"
                raise UsageError(f"{wrong}; its parts: {', '.join(names)}")
        parts = [part for part in self.parts if (not only or part.name in only) and part.name not in leave_out]
        if not parts:
            raise UsageError("--only and --leave-out exclude every part")
        return parts
