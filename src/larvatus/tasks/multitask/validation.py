"""Validation of a model of several tasks: the scores of each task by its own head, and what selects a checkpoint.

    scores = TaskValidation({"tag": …, "spans": …}, configs, metric="mean").scores(model, scoring)
    scores.values["tag.accuracy"], scores.main

The default metric is the mean of the tasks' main metrics: no task is given up for another. ``tag.entity-f1`` selects by
one metric of one task instead. Metrics of all tasks are shares or correlations, so their mean is one as well. The
validation loss is the sum of those of the tasks, by their weights, as in training.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network
from larvatus.tasks.features import Features
from larvatus.tasks.multitask.data import TaskBatches
from larvatus.tasks.multitask.views import network_view
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Calibration, Scores, ValidationSet

MEAN = "mean"
"""Mean of the main metrics of all tasks."""


@dataclass(frozen=True, eq=False)
class TaskValidation:
    """Validation examples of several tasks."""

    parts: Mapping[str, ValidationSet]
    """By task."""
    configs: Mapping[str, HeadConfig]
    metric: str = MEAN

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        each = {
            task: part.scores(network_view(model, self.configs[task]), scoring) for task, part in self.parts.items()
        }
        return Scores(
            metric=self.metric,
            values=joined_values(each),
            validation_loss=sum(self.configs[task].weight * scores.validation_loss for task, scores in each.items()),
        )

    def of_task(self, task: str, scores: Scores) -> Scores | None:
        """The scores of one task, as its own validation gives them, apart from the loss; None if it has no examples."""
        if task not in self.parts:
            return None
        mark = f"{task}."
        values = {name.removeprefix(mark): value for name, value in scores.values.items() if name.startswith(mark)}
        return Scores(metric=self.parts[task].metric, values=values)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """None: each head has a temperature of its own."""
        return Calibration()

    def read_once(self, model: Network, scoring: ScoringOptions) -> TaskValidation:
        parts = {
            task: part.read_once(network_view(model, self.configs[task]), scoring) for task, part in self.parts.items()
        }
        return dataclasses.replace(self, parts=parts)


def joined_values(scores: Mapping[str, Scores]) -> dict[str, float]:
    """The mean of the main metrics, and the metrics of each task after its name, its main one first."""
    ordered = {task: {each.metric: each.main} | each.values for task, each in scores.items()}
    values = {f"{task}.{name}": value for task, each in ordered.items() for name, value in each.items()}
    return {MEAN: statistics.fmean(each.main for each in scores.values())} | values


def task_features(model: Network, data: TaskBatches, scoring: ScoringOptions) -> dict[str, Features]:
    """Outputs of a frozen encoder, by task."""
    return {
        task: Features.build(network_view(model, data.heads[task]), part, scoring) for task, part in data.parts.items()
    }
