"""One optimisation step: microbatches, backward, the sum over ranks, the guard, the update.

The loss of a step is a mean over all its predicted tokens. Each microbatch's sum is divided by the counts of the whole
step, so gradients add up to the same whatever the microbatch, and a microbatch without targets counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from larvatus.arrays import Ints
from larvatus.batch import TrainingBatch
from larvatus.engine.distribution import Ranks
from larvatus.engine.optimizer import set_rate
from larvatus.engine.report import StepReport
from larvatus.engine.settings import Runtime
from larvatus.network import Network
from larvatus.nn.buckets import fill
from larvatus.nn.device import on_device
from larvatus.objectives import Loss, PredictsWords, combine
from larvatus.recipes import Recipe
from larvatus.rng import derive


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
    ) -> None:
        self.model, self.optimizer, self.recipe = model, optimizer, recipe
        self.runtime, self.ranks, self.seed, self.pad_id = runtime, ranks, seed, pad_id
        self._bad: Tensor | None = None
        self._losses: Any = torch.compile(model, dynamic=False) if runtime.compile else model

    def __call__(self, batch: TrainingBatch[Ints], *, step: int, rate: float, limit: int) -> StepReport:
        """Update the weights once. If anything is not finite they stay, on every rank: see `StepReport.check`."""
        self.model.train()
        counts = predictions(self.model, batch)
        sums = {name: torch.zeros((), device=self.runtime.device) for name in counts}
        for item, micro in enumerate(batch.split(self.runtime.microbatch)):
            if self.ranks.takes(item):
                for name, part in self._backward(micro, counts, step=step, item=item, limit=limit).items():
                    sums[name] += part
        totals = self.ranks.add(torch.stack([sums[name] for name in counts]))
        self.ranks.add_gradients(self.model)
        numbers = torch.cat([totals, self._clip().float()[None]])
        self._refuse_what_is_not_finite(numbers)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        weights = {name: head.config.weight for name, head in self.model.heads.items()}
        return StepReport(numbers, counts, weights, step=step, tokens=batch.tokens.size, rate=rate)

    def _refuse_what_is_not_finite(self, numbers: Tensor) -> None:
        """Tell the fused optimizer, on its device, to leave the weights alone from now on; nobody waits for it."""
        bad = (~torch.isfinite(numbers).all()).float()
        self._bad = bad if self._bad is None else torch.maximum(self._bad, bad)
        self.optimizer.found_inf = self._bad  # type: ignore[attr-defined]

    def _backward(
        self, micro: TrainingBatch[Ints], counts: Mapping[str, int], *, step: int, item: int, limit: int
    ) -> dict[str, Tensor]:
        """Forward and backward of one microbatch; the sums of its losses."""
        if self.runtime.compile:
            micro = self._fixed_shape(micro, limit)
        tensors = on_device(micro, self.runtime.device)
        with replayable(derive(self.seed, "dropout", step, item), self.runtime.device), self._autocast():
            losses: dict[str, Loss] = self._losses(tensors, limit=limit)
        combine(losses, counts).backward()
        return {name: loss.total.detach().float() for name, loss in losses.items()}

    def _fixed_shape(self, micro: TrainingBatch[Ints], limit: int) -> TrainingBatch[Ints]:
        """Bring a microbatch to totals that depend on the recipe and runtime alone, so nothing is recompiled."""
        step = self.recipe.batch * limit
        parts = -(-step // self.runtime.microbatch)
        tokens = _bucket(micro.tokens.size, step if parts == 1 else -(-step // parts) + limit)
        needed: set[type] = {
            head.needs for head in self.model.heads.values()
        }  # a corruption may give more than anybody reads
        read = {kind: targets for kind, targets in micro.targets.items() if kind in needed}
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

    def _autocast(self) -> torch.autocast:
        device = "cuda" if self.runtime.cuda else "cpu"
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.runtime.precision == "bf16")

    def _clip(self) -> Tensor:
        """The norm of the whole gradient, which is clipped to the recipe's largest."""
        clip = self.recipe.optimizer.clip or math.inf
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)


def predictions(model: Network, batch: TrainingBatch[Any]) -> dict[str, int]:
    """How many predictions each objective makes on a batch."""
    return {name: batch.targets[head.needs].count for name, head in model.heads.items()}


def _bucket(size: int, base: int) -> int:
    """The smallest base × 2^k that holds `size`: one shape nearly always, a few at the worst."""
    while base < size:
        base *= 2
    return base


@contextmanager
def replayable(seed: int, device: str) -> Iterator[None]:
    """Dropout draws that depend on `seed` alone; the generator that was there before comes back afterwards."""
    devices = [torch.cuda.current_device()] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
