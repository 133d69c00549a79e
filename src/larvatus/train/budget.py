"""How many steps: given, from epochs, or from minutes.

Minutes are measured into steps before the run begins, so that the run itself depends on nothing but recipe, corpus and
seed, and can be repeated with `--steps`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from larvatus.corpus.loader import Loader
from larvatus.recipes import Recipe
from larvatus.train.settings import Budget
from larvatus.train.step import Stepper

MEASURED_S = 4.0
RESERVE = 0.94  # the rest goes into evaluation and saving


def steps_of_epochs(recipe: Recipe, tokens: int, epochs: float) -> int:
    """Steps that read the corpus `epochs` times: a step of phase i holds batch × length_i tokens."""
    per_step = sum(phase.share * recipe.batch * phase.length for phase in recipe.phases)
    return max(1, round(epochs * tokens / per_step))


def steps_of_minutes(
    recipe: Recipe, minutes: float, *, stepper: Stepper, loader: Callable[[int], Loader], began: float
) -> int:
    """Time a few steps of every phase (after one that compiles and warms up), and see how many fit.

    The weights move while measuring: the caller puts them back.
    """
    mean = sum(
        phase.share * _seconds_per_step(stepper, loader(number), phase.length)
        for number, phase in enumerate(recipe.phases)
    )
    left = minutes * 60 * RESERVE - (time.monotonic() - began)
    return max(1, int(left / mean))


def _seconds_per_step(stepper: Stepper, loader: Loader, length: int) -> float:
    batches = loader.steps()
    for _ in range(2):
        stepper(next(batches)[0], step=0, rate=0.0, limit=length).check()
    began, steps = time.monotonic(), 0
    while steps < 2 or time.monotonic() - began < MEASURED_S:
        report = stepper(next(batches)[0], step=0, rate=0.0, limit=length)
        steps += 1
    report.check()  # waits for the last one
    return (time.monotonic() - began) / steps


def steps_wanted(recipe: Recipe, budget: Budget, tokens: int) -> int | None:
    """The number of steps where it is known without measuring."""
    if budget.minutes is not None:
        return None
    if budget.epochs is not None:
        return steps_of_epochs(recipe, tokens, budget.epochs)
    return budget.steps or recipe.schedule.steps
