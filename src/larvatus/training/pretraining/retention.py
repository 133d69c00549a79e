"""What keeps a model near the one it started from: a first stage for new embeddings, and a pull towards the start.

    stage = EmbeddingStage(model, optimizer, names={"encoder.embeddings.words.weight"}, steps=200, warmup=50)
    rate = stage.enter(step, rate)                       # before each step: decides what trains, and the rate

**Stage one** trains only parameters with a row for each token, so that the blocks do not change while the vectors of a
new vocabulary are still poor (Artetxe et al. 2020; de Vries & Nissim 2021). Stage two trains all parameters with a new
optimizer state and a second warm-up. A checkpoint needs only the step and the number of steps of stage one.

**The pull** (L2-SP, Li et al. 2018) is a penalty (w / 2) · ‖θ − θ₀‖², decoupled from the gradient as AdamW decouples
weight decay: θ ← θ − rate · w · (θ − θ₀) after each step. Parameters with a row per token are left out if the
vocabulary was replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn


class EmbeddingStage:
    """The stages of a run: `names` train in the first `steps` steps, everything afterwards."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        names: Collection[str],
        steps: int = 0,
        warmup: int = 0,
    ) -> None:
        self.model, self.optimizer, self.names = model, optimizer, frozenset(names)
        self.steps, self.warmup = steps, warmup
        self._first: bool | None = None
        """Whether stage one is in force; None before the first step of this session."""

    def enter(self, step: int, rate: float) -> float:
        """Choose what trains in step `step`; the rate of the step."""
        if not self.steps:
            return rate
        first = step < self.steps
        if first != self._first:
            self.resume(step)
            if step == self.steps:
                self.optimizer.state.clear()
        if first or not self.warmup:
            return rate
        return rate * min(1.0, (step - self.steps + 1) / self.warmup)

    def resume(self, step: int) -> None:
        """Choose what trains from step `step` on; the optimizer keeps its state."""
        self._first = step < self.steps
        if not self.steps:
            return
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(not self._first or name in self.names)

    def optimizer_steps(self, step: int) -> int:
        """Updates that the optimizer's state has seen once `step` steps were made."""
        return step if step < self.steps else step - self.steps


class StartPull:
    """Pulls parameters towards their values at the start of a run, after each step."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight: float) -> None:
        self.weight = weight
        self._parameters = [parameter.detach() for parameter in parameters.values()]
        self._start = [parameter.clone() for parameter in self._parameters]

    @torch.no_grad()
    def __call__(self, rate: float, bad: Tensor) -> None:
        """Move by min(1, rate · weight) of the distance; nothing moves where a number was not finite."""
        distances = torch._foreach_sub(self._start, self._parameters)
        torch._foreach_mul_(distances, (1.0 - bad) * min(1.0, rate * self.weight))
        torch._foreach_add_(self._parameters, list(distances))
