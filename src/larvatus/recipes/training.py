"""How a published system was trained: optimizer, schedule, phases. The settings only; `train/` carries them out.

[optimizer]                        [[phases]]
rate = 1e-4                        share = 0.9
decay = 0.01                       length = 128
"""

from __future__ import annotations

import itertools
from typing import Literal

from msgspec import Struct

from larvatus.errors import RecipeError


class OptimizerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AdamW (Loshchilov & Hutter 2019) or LAMB (You et al. 2020); norms and biases are not decayed."""

    rate: float = 1e-4
    """Peak learning rate."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    decay: float = 0.01
    """Decoupled weight decay of matrices."""
    clip: float = 1.0
    """Largest norm of the whole gradient; 0 switches clipping off."""
    type: Literal["adamw", "lamb"] = "adamw"
    """lamb: each matrix moves in proportion to its own norm, for batches of thousands of sequences."""

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise RecipeError(f"optimizer.rate must be above 0, not {self.rate}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"optimizer.{name} must lie in [0, 1), not {getattr(self, name)}")


class ScheduleConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Warm-up to the peak rate, then a way down."""

    type: Literal["linear", "cosine", "trapezoid", "constant"] = "linear"
    warmup: float = 0.01
    """Share of all steps over which the rate rises from 0 (BERT: 10,000 of 1,000,000)."""
    warmup_floor: int = 0
    """At least so many steps of warm-up in a short run, though never more than a quarter of it. A share alone leaves a
    run of 300 steps with six, after which the moments of Adam are still noise. No warm-up at all stays none."""
    cooldown: float = 0.1
    """Share of all steps over which a trapezoid comes down."""
    floor: float = 0.0
    """Where the rate ends, as a share of the peak."""
    steps: int = 1_000_000
    """Steps as published; `--steps`, `--minutes` or `--epochs` say otherwise."""

    def __post_init__(self) -> None:
        for name in ("warmup", "cooldown", "floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"schedule.{name} is a share between 0 and 1, not {getattr(self, name)}")
        if self.warmup_floor < 0:
            raise RecipeError(f"schedule.warmup_floor is a number of steps from 0 up, not {self.warmup_floor}")
        if self.steps < 1:
            raise RecipeError(f"schedule.steps must be at least 1, not {self.steps}")

    def warmup_steps(self, steps: int) -> int:
        """Steps of warm-up in a run of so many.

        >>> ScheduleConfig(warmup=0.02, warmup_floor=100).warmup_steps(300)
        75
        """
        if not self.warmup:
            return 0
        return max(1, round(self.warmup * steps), min(self.warmup_floor, steps // 4))


class Phase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch of training at one sequence length."""

    length: int = 512
    """Longest sequence, special tokens included."""
    share: float = 1.0
    """Share of all steps."""

    def __post_init__(self) -> None:
        if self.length < 8:
            raise RecipeError(f"phases.length must be at least 8 tokens, not {self.length}")
        if not 0 < self.share <= 1:
            raise RecipeError(f"phases.share must lie in (0, 1], not {self.share}")


def steps_of_phases(phases: tuple[Phase, ...], steps: int) -> list[int]:
    """Whole steps for each phase, summing to `steps`: borders are rounded, so no step is lost.

    >>> steps_of_phases((Phase(length=128, share=0.9), Phase(length=512, share=0.1)), 15)
    [14, 1]
    """
    edges, passed = [0], 0.0
    for phase in phases[:-1]:
        passed += phase.share
        edges.append(min(round(passed * steps + 1e-9), steps))
    edges.append(steps)
    return [after - before for before, after in itertools.pairwise(edges)]
