"""The parts of a step: the examples of one head, or of several heads that are trained together.

    for part in step_parts(model, data, chosen, features):
        loss = part.weight * mean_loss(part.head, part.batch)

Of one task, a step has one part. Of several (`multitask/data.py`), it has one for each task, and its loss is their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.models.heads.head import Head
from larvatus.models.network import Network, tag
from larvatus.tasks.arguments import Trainable
from larvatus.tasks.features import ExampleBatches, Features
from larvatus.tasks.multitask.data import TaskBatches
from larvatus.tasks.scoring import head_of

FrozenFeatures = Features | Mapping[str, Features]
"""Outputs of a frozen encoder for all examples; of several tasks, by task."""


class StepPart(NamedTuple):
    """The examples of one head in a step."""

    head: Head
    examples: Ints
    batch: TrainingBatch[Ints]
    features: Features | None
    weight: float = 1.0
    """Weight of the mean loss of these examples."""


def step_parts(
    model: Network, data: ExampleBatches, chosen: Ints, features: FrozenFeatures | None
) -> Iterator[StepPart]:
    """The chosen examples by head."""
    if not isinstance(data, TaskBatches):
        assert not isinstance(features, Mapping)
        yield StepPart(head_of(model), chosen, data.batch(chosen), features)
        return
    for task, examples in data.split(chosen):
        config = data.heads[task]
        head = model.objectives[tag(config)]
        assert isinstance(head, Head)
        assert not isinstance(features, Features)
        rows = None if features is None else features[task]
        yield StepPart(head, examples, data.parts[task].batch(examples), rows, config.weight)


def head_rates(data: ExampleBatches, trained: Trainable) -> dict[str, float]:
    """Factors of the rates of several heads by name, where their rates follow from the tasks' defaults."""
    if not isinstance(data, TaskBatches) or trained not in ("all", "last"):
        return {}
    return {tag(data.heads[task]): rate for task, rate in data.rates.items()}
