"""A step of pretraining: the objectives of a network on a batch, as `engine/step.py` carries out a step.

    stepper = Stepper(model, optimizer, recipe, runtime=runtime, ranks=Ranks(), seed=1, pad_id=0)
    report = stepper(batch, step=0, rate=1e-4, limit=128)

The loss of a step is a mean over all its predicted tokens. Each microbatch's sum is divided by the counts of the whole
step, so gradients add up to the same whatever the microbatch, and a microbatch without targets counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from larvatus.arrays import Ints
from larvatus.batch import TrainingBatch
from larvatus.engine.distribution import Ranks
from larvatus.engine.settings import Runtime
from larvatus.engine.step import Share, Update, autocast
from larvatus.network import Network
from larvatus.nn.buckets import fill
from larvatus.nn.device import on_device
from larvatus.objectives import Loss, PredictsWords, combine
from larvatus.pretraining.report import StepReport
from larvatus.recipes import Recipe


class Stepper:
    """Carries out steps on a model with an optimizer; holds nothing that a checkpoint would need."""

    def __init__(
        self,
        model: Network,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        *,
        runtime: Runtime,
        ranks: Ranks,
        seed: int,
        pad_id: int,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model, self.recipe, self.runtime, self.pad_id = model, recipe, runtime, pad_id
        self.update = Update(
            optimizer,
            list(model.parameters()),
            runtime=runtime,
            ranks=ranks,
            clip=recipe.optimizer.clip,
            seed=seed,
            warn=warn,
        )
        self._losses: Any = torch.compile(model, dynamic=False) if runtime.compile else model

    def __call__(self, batch: TrainingBatch[Ints], *, step: int, rate: float, limit: int) -> StepReport:
        """Update the weights once. If anything is not finite they stay, on every rank: see `StepReport.check`."""
        self.model.train()
        counts = predictions(self.model, batch)
        numbers = self.update(
            batch.split,
            lambda micro: self._share(micro, counts, limit),
            step=step,
            rate=rate,
            figures=len(counts),
        )
        weights = {name: head.config.weight for name, head in self.model.heads.items()}
        return StepReport(numbers, counts, weights, step=step, tokens=batch.tokens.size, rate=rate)

    def _share(self, micro: TrainingBatch[Ints], counts: Mapping[str, int], limit: int) -> Share:
        """What one microbatch adds to the loss of the step; the figures are the sums of each objective's losses."""
        if self.runtime.compile:
            micro = self._fixed_shape(micro, limit)
        tensors = on_device(micro, self.runtime.device)
        with autocast(self.runtime):
            losses: dict[str, Loss] = self._losses(tensors, limit=limit)
        sums = [losses[name].total.detach().float() for name in counts]
        return Share(loss=combine(losses, counts), figures=torch.stack(sums))

    def _fixed_shape(self, micro: TrainingBatch[Ints], limit: int) -> TrainingBatch[Ints]:
        """Bring a microbatch to totals that depend on the recipe and runtime alone, so nothing is recompiled."""
        step = self.recipe.batch * limit
        parts = -(-step // self.update.microbatch)
        tokens = _bucket(micro.tokens.size, step if parts == 1 else -(-step // parts) + limit)
        needed: set[type] = {head.needs for head in self.model.heads.values()}
        read = {
            kind: targets for kind, targets in micro.targets.items() if kind in needed
        }  # a corruption may give more
        return fill(
            TrainingBatch(tokens=micro.tokens, targets=read),
            tokens=tokens,
            sequences=_bucket(
                micro.tokens.count + -(-(tokens - micro.tokens.size) // limit), 2 * (tokens // limit) + 64
            ),
            targets=_bucket(self._words(micro), math.ceil(1.02 * self.recipe.words_per_token * tokens / 128 + 1) * 128),
            limit=limit,
            pad_id=self.pad_id,
        )

    def _words(self, micro: TrainingBatch[Ints]) -> int:
        """How many words an objective predicts in a microbatch; of several, the most."""
        kinds = [config.needs for config in self.recipe.objectives if isinstance(config, PredictsWords)]
        return max((micro.targets[kind].count for kind in kinds if kind in micro.targets), default=0)


def predictions(model: Network, batch: TrainingBatch[Any]) -> dict[str, int]:
    """How many predictions each objective makes on a batch."""
    return {name: batch.targets[head.needs].count for name, head in model.heads.items()}


def _bucket(size: int, base: int) -> int:
    """The smallest base × 2^k that holds `size`: one shape nearly always, a few at the worst."""
    while base < size:
        base *= 2
    return base
