"""How a published system was trained: optimizer, schedule, phases. The settings only; `train/` carries them out.

[optimizer]                        [[phases]]
rate = 1e-4                        share = 0.9
decay = 0.01                       length = 128
"""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from larvatus.core.errors import RecipeError
from larvatus.core.ranges import (
    Beta,
    Clip,
    CountOrNone,
    Decay,
    LearningRate,
    Length,
    PositiveEpsilon,
    PositiveShare,
    Share,
    Steps,
)
from larvatus.core.settings import Settings


class HiddenMatrices(NamedTuple):
    """How Muon moves the matrices of blocks, where the recipe does not say otherwise (Jordan et al. 2024)."""

    rate: float = 0.02
    decay: float = 0.05
    momentum: float = 0.95


class OptimizerConfig(Settings, path="optimizer.", error=RecipeError):
    """AdamW (Loshchilov & Hutter 2019), LAMB (You et al. 2020), Adafactor or Muon; norms and biases are not decayed."""

    rate: LearningRate = 1e-4
    """Peak learning rate."""
    beta1: Beta = 0.9
    """How much of the mean gradient stays at each step; 0: none, the gradient alone."""
    beta2: Beta = 0.999
    """The same of the mean square."""
    epsilon: PositiveEpsilon = 1e-6
    """Added to the root of the mean square; above 0, or a weight without gradients would be divided by 0."""
    decay: Decay = 0.01
    """Decoupled weight decay of matrices; 0: none."""
    clip: Clip = 1.0
    """Largest norm of the whole gradient; 0 switches clipping off."""
    type: Literal["adamw", "lamb", "adafactor", "muon"] = "adamw"
    """lamb: each matrix moves in proportion to its own norm, for batches of thousands of sequences. adafactor: second
    moments by rows and columns, steps in proportion to the size of the weights (T5); beta2 and epsilon are then as
    published, whatever is set. muon: the matrices of blocks take orthogonal steps, with a rate and a decay of their own
    (below); embeddings, heads, norms and biases are AdamW's, as all that is said above."""
    muon_rate: LearningRate | UnsetType = UNSET
    """Peak rate of muon's matrices, over the same schedule; unset: 0.02."""
    muon_decay: Decay | UnsetType = UNSET
    """Their decay, times their rate; unset: 0.05."""
    momentum: Beta | UnsetType = UNSET
    """How much of their mean gradient stays at each step, looked ahead by (Nesterov); unset: 0.95."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type == "muon":  # said in full, so that a saved recipe tells what a model was trained with
            for name, value in zip(("muon_rate", "muon_decay", "momentum"), self.hidden, strict=True):
                force_setattr(self, name, value)

    @property
    def hidden(self) -> HiddenMatrices:
        """What Muon does, with what is unset filled in."""
        given = {"rate": self.muon_rate, "decay": self.muon_decay, "momentum": self.momentum}
        return HiddenMatrices(**{name: value for name, value in given.items() if value is not UNSET})


class ScheduleConfig(Settings, path="schedule.", error=RecipeError):
    """Warm-up to the peak rate, then a way down."""

    type: Literal["linear", "cosine", "trapezoid", "constant", "inverse-square-root"] = "linear"
    """inverse-square-root: the peak until the warm-up is over, then peak × √(warm-up / step) (T5)."""
    warmup: Share = 0.01
    """Share of all steps over which the rate rises from 0 (BERT: 10,000 of 1,000,000)."""
    warmup_floor: CountOrNone = 0
    """At least so many steps of warm-up in a short run, though never more than a quarter of it. A share alone leaves a
    run of 300 steps with six, after which the moments of Adam are still noise. No warm-up at all stays none."""
    cooldown: Share = 0.1
    """Share of all steps over which a trapezoid comes down."""
    floor: Share = 0.0
    """Where the rate ends, as a share of the peak."""
    steps: Steps = 1_000_000
    """Steps as published; `--steps`, `--minutes` or `--epochs` say otherwise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type == "trapezoid" and self.warmup + self.cooldown > 1:
            raise RecipeError(
                f"schedule.warmup = {self.warmup:g} and schedule.cooldown = {self.cooldown:g} are more than the whole "
                "run; lower one of them"
            )

    def warmup_steps(self, steps: int) -> int:
        """Steps of warm-up in a run of so many.

        >>> ScheduleConfig(warmup=0.02, warmup_floor=100).warmup_steps(300)
        75
        """
        if not self.warmup:
            return 0
        return max(1, round(self.warmup * steps), min(self.warmup_floor, steps // 4))


class Phase(Settings, path="phases.", error=RecipeError):
    """A stretch of training at one sequence length."""

    length: Length = 512
    """Longest sequence, special tokens included."""
    share: PositiveShare = 1.0
    """Share of all steps."""


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
