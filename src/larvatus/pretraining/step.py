"""A step of pretraining: the objectives of a network on a batch, as `engine/step.py` carries out a step.

    stepper = Stepper(model, optimizer, recipe, runtime=runtime, ranks=Ranks(), seed=1, pad_id=0)
    report = stepper(batch, step=0, rate=1e-4, limit=128)

    ready = stepper.prepare(batch, limit=128)          # all that needs no weights: ahead of time, on another thread
    report = stepper.launch(ready, step=0, rate=1e-4)

The loss of a step is a mean over all its predicted tokens. Each microbatch's sum is divided by the counts of the whole
step, so gradients add up to the same whatever the microbatch, and a microbatch without targets counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from larvatus.arrays import Ints
from larvatus.batch import TrainingBatch
from larvatus.engine.distribution import Ranks
from larvatus.engine.settings import Runtime
from larvatus.engine.staging import Stage, Staged
from larvatus.engine.step import Share, Update, autocast
from larvatus.network import Network
from larvatus.nn.buckets import fill
from larvatus.nn.dropout import draws
from larvatus.objectives import Loss, PredictsWords, combine
from larvatus.pretraining.report import StepReport
from larvatus.recipes import Recipe

Micro = Staged | TrainingBatch[Ints]


@dataclass(frozen=True)
class ReadyStep:
    """A step that waits for nothing but the weights."""

    batch: TrainingBatch[Ints]
    microbatch: int
    """Tokens of one pass, by which it was cut."""
    micros: Sequence[Micro]
    """Its microbatches, those of this rank on the device."""
    counts: Mapping[str, int]
    """How many predictions each objective makes."""
    limit: int
    """No sequence is longer."""

    def split(self, microbatch: int) -> Sequence[Micro]:
        """The step in parts of so many tokens: as it was prepared, or cut anew where that is another number."""
        return self.micros if microbatch == self.microbatch else list(self.batch.split(microbatch))


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
            draws=draws(model) or any(getattr(config, "samples", 0) for config in recipe.objectives),
            warn=warn,
        )
        self._losses: Any = torch.compile(model, dynamic=False) if runtime.compile else model
        self._stage = Stage(runtime.device)
        self._needed: set[type] = {head.needs for head in model.heads.values()}

    def __call__(self, batch: TrainingBatch[Ints], *, step: int, rate: float, limit: int) -> StepReport:
        """Prepare a step and launch it."""
        return self.launch(self.prepare(batch, limit=limit), step=step, rate=rate)

    def prepare(self, batch: TrainingBatch[Ints], *, limit: int) -> ReadyStep:
        """Cut a step into microbatches and send them to the device; this may run on another thread than the steps."""
        microbatch, takes = self.update.microbatch, self.update.ranks.takes
        parts = enumerate(batch.split(microbatch))
        micros = [self._staged(micro, limit) if takes(item) else micro for item, micro in parts]
        return ReadyStep(batch, microbatch, micros, predictions(self.model, batch), limit)

    def launch(self, ready: ReadyStep, *, step: int, rate: float) -> StepReport:
        """Update the weights once. If anything is not finite they stay, on every rank: see `StepReport.check`."""
        self.model.train()
        numbers = self.update(
            ready.split,
            lambda micro: self._share(micro, ready),
            step=step,
            rate=rate,
            figures=len(ready.counts),
        )
        weights = {name: head.config.weight for name, head in self.model.heads.items()}
        report = StepReport(numbers, ready.counts, weights, step=step, tokens=ready.batch.tokens.size, rate=rate)
        report.mine = self.update.mine
        return report

    def _staged(self, micro: TrainingBatch[Ints], limit: int) -> Staged:
        return self._stage(self._fixed_shape(micro, limit) if self.runtime.compile else self._read(micro))

    def _read(self, micro: TrainingBatch[Ints]) -> TrainingBatch[Ints]:
        """A microbatch with the targets alone that an objective reads: a corruption may give more."""
        targets = {kind: value for kind, value in micro.targets.items() if kind in self._needed}
        return TrainingBatch(tokens=micro.tokens, targets=targets)

    def _share(self, micro: Micro, ready: ReadyStep) -> Share:
        """What one microbatch adds to the loss of the step; the figures are the sums of each objective's losses."""
        counts, limit = ready.counts, ready.limit
        tensors = (micro if isinstance(micro, Staged) else self._staged(micro, limit)).take()
        with autocast(self.runtime):
            losses: dict[str, Loss] = self._losses(tensors, limit=limit)
        sums = [losses[name].total.detach().float() for name in counts]
        return Share(loss=combine(losses, counts), figures=torch.stack(sums))

    def _fixed_shape(self, micro: TrainingBatch[Ints], limit: int) -> TrainingBatch[Ints]:
        """Bring a microbatch to totals that depend on the recipe and runtime alone, so nothing is recompiled."""
        step = self.recipe.batch * limit
        parts = -(-step // self.update.microbatch)
        tokens = _bucket(micro.tokens.size, step if parts == 1 else -(-step // parts) + limit)
        return fill(
            self._read(micro),
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
