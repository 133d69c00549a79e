"""What a step of fine-tuning computes: the examples of several heads, or one loss over all vectors of the step.

    for part in step_parts(model, data, chosen, features):
        loss = part.weight * mean_loss(part.head, part.batch)

Of one task, a step has one part. Of several (`multitask/data.py`), it has one for each task, and its loss is their sum.

A loss over all vectors needs only the memory of one microbatch (GradCache, Gao et al. 2021, *Scaling deep contrastive
learning batch size under memory limited setup*):

    1. every microbatch is embedded without a graph:        v = f(x; θ)
    2. the loss of all vectors gives their gradients:       g = ∂L / ∂v
    3. every microbatch is embedded again, with a graph:    ∂L/∂θ = Σ g · ∂v/∂θ,  the gradient of (g · v).sum()

So the batch, which is the number of in-batch negatives, does not depend on memory. Both passes of a microbatch use the
same dropout masks. With several processes, each embeds its microbatches, and all compute the loss of all vectors.

T texts of a step (or their tokens, where these are compared), K size of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import UsageError
from larvatus.core.rng import derive
from larvatus.core.targets import SentenceTargets
from larvatus.models.heads.head import Head
from larvatus.models.network import Network, tag
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import Loss
from larvatus.tasks.arguments import Trainable
from larvatus.tasks.features import ExampleBatches, Features
from larvatus.tasks.multitask.data import TaskBatches
from larvatus.tasks.scoring import features_of, head_of
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import MicrobatchLoss, autocast, seed_generator

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


# One loss over all vectors of a step.


@runtime_checkable
class VectorHead(Protocol):
    """A head whose loss is computed from the vectors of all texts of a step."""

    progress: float
    """Share of the training steps that are done, for losses that change with it."""

    @property
    def whole_step(self) -> bool:
        """Whether the losses of microbatches do not add up to that of the step."""

    def vectors(self, x_BD: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """The vector of each text: [B, D] → [T, K]; of token vectors, those of all tokens."""

    def vector_rows(self, targets: SentenceTargets[Ints]) -> int:
        """Rows that `vectors` has for these texts."""

    def score_loss(self, scores: Tensor, targets: SentenceTargets[Tensor], *, accuracy: bool = False) -> Loss: ...


@dataclass(frozen=True, kw_only=True)
class CachedStep:
    """Where and when a step is computed."""

    seed: int
    step: int
    runtime: Runtime
    ranks: Ranks


class CachedGradients:
    """One step; the first pass runs when the first microbatch needs its gradients."""

    def __init__(
        self,
        model: Network,
        head: Head,
        batch: TrainingBatch[Ints],
        parts: Sequence[TrainingBatch[Ints]],
        *,
        at: CachedStep,
    ) -> None:
        assert isinstance(head, VectorHead)
        if len(parts) < at.ranks.count:
            raise UsageError(
                f"a step of {len(parts)} microbatches has none for some of {at.ranks.count} processes; make --batch "
                "larger, or start fewer processes"
            )
        self.model, self.head, self.batch, self.parts, self.at = model, head, batch, parts, at
        counts = np.array([head.vector_rows(part.targets[SentenceTargets]) for part in parts], np.int64)
        self.borders = edges(counts).tolist()
        self._gradients: Tensor | None = None
        self._loss = torch.zeros(())

    def loss(self, item: int) -> MicrobatchLoss:
        """What one microbatch adds: its gradient is that of the step's mean loss, its figure its share of that loss."""
        gradients_TK = self._first_pass()
        first, last = self.borders[item : item + 2]
        self._seed(item)
        x_TK = self._vectors(item)
        share = (last - first) / max(self.borders[-1], 1)
        return MicrobatchLoss(loss=(x_TK * gradients_TK[first:last]).sum(), figures=(self._loss * share)[None])

    def _first_pass(self) -> Tensor:
        """[T, K] the gradient of the mean loss by each vector."""
        if self._gradients is not None:
            return self._gradients
        device = self.at.runtime.device
        x_TK: Tensor | None = None
        with torch.no_grad():
            for item in range(len(self.parts)):
                if self.at.ranks.takes(item):
                    self._seed(item)
                    part = self._vectors(item)
                    if x_TK is None:
                        x_TK = part.new_zeros(self.borders[-1], part.shape[1])
                    x_TK[slice(*self.borders[item : item + 2])] = part
        assert x_TK is not None
        x_TK = self.at.ranks.add(x_TK).requires_grad_()
        targets = self.batch.targets[SentenceTargets].map(lambda array: torch.as_tensor(array).to(device))
        loss = self.head.score_loss(x_TK, targets)
        mean = loss.total / loss.count.clamp(min=1)
        (self._gradients,) = torch.autograd.grad(mean, x_TK)
        self._loss = mean.detach()
        return self._gradients

    def _vectors(self, item: int) -> Tensor:
        """The vectors of the texts of a microbatch."""
        part = self.parts[item]
        batch = on_device(part, self.at.runtime.device)
        with autocast(self.at.runtime):
            limit = int(part.tokens.lengths.max())
            x_BD = features_of(self.model, batch, self.head, limit=limit, learning=True)
            vectors: Tensor = self.head.vectors(x_BD, batch.targets[SentenceTargets])
        return vectors

    def _seed(self, item: int) -> None:
        """As `Update` seeds the dropout of a microbatch."""
        seed_generator(self.at.runtime.device, derive(self.at.seed, "dropout", self.at.step, item))
