"""The arguments of fine-tuning several tasks, and each task's own view of them.

options = MultiTaskOptions(by_task={"tag": TagOptions(crf=True)}, weights={"classify": 0.5})
OneTaskArguments(args, "tag").options.crf
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.arguments import TaskArguments, Trainable
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.multitask.validation import MEAN
from larvatus.tasks.scoring import ScoringOptions


class MultiTaskOptions(Settings):
    """Options of each task, and the weight of its loss."""

    by_task: dict[str, Any] = {}
    """Options of a task; its defaults where they are missing."""
    weights: dict[str, Weight] = {}
    """Weight of the mean loss of a task; that of the task (`joint_weight`) where it is missing."""

    @classmethod
    def of(cls, by_task: Mapping[str, Struct | None], weights: Mapping[str, Any]) -> MultiTaskOptions:
        """Options and weights, which may be words of the command line."""
        try:
            return cls(by_task=dict(by_task), weights=msgspec.convert(dict(weights), dict[str, Weight], strict=False))
        except msgspec.ValidationError as fault:
            raise UsageError(f"the weight of a task: {fault}") from fault


@dataclass(frozen=True)
class OneTaskArguments:
    """Arguments of a run as one of its tasks reads them."""

    args: TaskArguments
    task: str

    @property
    def _options(self) -> MultiTaskOptions:
        given = self.args.options
        return given if isinstance(given, MultiTaskOptions) else MultiTaskOptions()

    @property
    def options(self) -> Struct | None:
        options: Struct | None = self._options.by_task.get(self.task)
        return options

    def weight(self, default: float) -> float:
        """Weight of the task's loss."""
        return self._options.weights.get(self.task, default)

    @property
    def trainable(self) -> Trainable:
        return self.args.trainable

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.args.seeds

    @property
    def metric(self) -> str | None:
        """The metric that is the task's main one: that which selects the checkpoint, if it is of this task."""
        if self.args.metric in (None, MEAN):
            return None
        task, dot, metric = str(self.args.metric).partition(".")
        if not dot:
            raise UsageError(f"--metric of several tasks is {MEAN}, or one of a task, such as {self.task}.accuracy")
        return metric if task == self.task else None

    @property
    def strict(self) -> bool:
        return self.args.strict

    @property
    def scoring(self) -> ScoringOptions:
        return self.args.scoring

    def windows(self, bundle: Bundle) -> WindowOptions:
        return self.args.windows(bundle)

    def say(self, line: str) -> None:
        if line:
            self.args.say(f"{self.task}: {line}")
