"""The predictions of several tasks for one input.

both = model.predict("Mt. Sanitas is in Sunshine Canyon.")
both["tag"].words, both["spans"].entities
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from larvatus.core.tables import Tabular
from larvatus.tasks.results import Coverage, Piece, Prediction

NEW_LINE = Piece("", "new line")
"""The end of a line, before another task's."""


@dataclass(frozen=True, kw_only=True)
class TaskPredictions(Tabular):
    """Predictions of all tasks of a model that suit an input."""

    by_task: Mapping[str, Prediction]

    def __getitem__(self, task: str) -> Prediction:
        return self.by_task[task]

    @property
    def coverage(self) -> Coverage:
        """How much the task that read least has read."""
        return min((each.coverage for each in self.by_task.values()), key=lambda coverage: coverage.share)

    def to_dict(self) -> dict[str, Any]:
        return {task: prediction.to_dict() for task, prediction in self.by_task.items()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows of each task, which `task` names."""
        return [{"task": task, **row} for task, prediction in self.by_task.items() for row in prediction.to_dicts()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        for number, (task, prediction) in enumerate(self.by_task.items()):
            if number:
                yield NEW_LINE
            yield Piece(f"{task}  ", "dim")
            yield from prediction.pieces(top=top)

    def _repr_html_(self) -> str:
        """The pictures of all tasks, under their names."""
        drawings = ((task, getattr(each, "_repr_html_", None)) for task, each in self.by_task.items())
        return "".join(f"<h4>{escape(task)}</h4>{draw()}" for task, draw in drawings if draw is not None)

    def __str__(self) -> str:
        return "\n".join(f"{task}: {prediction}" for task, prediction in self.by_task.items())
