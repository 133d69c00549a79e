"""What a step did. Its numbers travel to the host by themselves; reading them waits for that step, not for later ones.

So the loop launches step n + 1 before it looks at step n, and a GPU never stands idle while Python prints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from larvatus.core.errors import NumericsError


class StepReport:
    """Mean losses of a whole step, over all ranks, and the norm of its gradient."""

    def __init__(
        self,
        numbers: Tensor,
        counts: Mapping[str, int],
        weights: Mapping[str, float],
        *,
        step: int,
        tokens: int,
        rate: float,
    ) -> None:
        """`numbers` [objectives + 1]: the sum of each objective's losses, then the norm of the unclipped gradient."""
        self.step, self.tokens, self.rate = step, tokens, rate
        self.wait = self.wait_share = 0.0
        self.mine: Tensor | None = None
        """Sums of losses of this rank alone."""
        self._counts, self._weights, self._numbers = counts, weights, numbers
        self._arrived: torch.cuda.Event | None = None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def waits(self, seconds: float, *, beside: float) -> None:
        """Take note of how long the step waited for its data, and of the seconds that it took besides."""
        self.wait, self.wait_share = seconds, seconds / max(seconds + beside, 1e-9)

    @cached_property
    def _values(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._numbers.tolist()
        return values

    @property
    def losses(self) -> dict[str, float]:
        return {name: total / max(n, 1) for (name, n), total in zip(self._counts.items(), self._values, strict=False)}

    @property
    def loss(self) -> float:
        """What was minimised: the losses, each by its weight."""
        return math.fsum(self._weights[name] * loss for name, loss in self.losses.items())

    @property
    def gradient(self) -> float:
        return self._values[-1]

    @property
    def is_mine_finite(self) -> bool:
        """Whether all that this rank computed is; to ask waits for the device."""
        return self.mine is None or bool(torch.isfinite(self.mine).all())

    def check(self) -> None:
        """Stop the run if the step was not sound; the optimizer has already left the weights alone."""
        wrong = [f"{name} loss {value}" for name, value in self.losses.items() if not math.isfinite(value)]
        if not math.isfinite(self.gradient):
            wrong.append(f"gradient norm {self.gradient}")
        if wrong:
            raise NumericsError(
                f"step {self.step + 1}: {', '.join(wrong)}; the weights were not touched; go on from the last "
                "checkpoint with a lower rate: --resume --fork --set optimizer.rate=…"
            )
