"""How many steps: given, from epochs or tokens, or from minutes.

Minutes are measured into steps before the run begins, so that the run itself depends on nothing but recipe, corpus and
seed, and can be repeated with `--steps`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from larvatus.corpus.loader import Loader
from larvatus.engine.settings import Budget
from larvatus.errors import UsageError
from larvatus.pretraining.loop import ahead
from larvatus.pretraining.step import ReadyStep, Stepper
from larvatus.recipes import Recipe, steps_of_phases

MEASURED_S = 4.0
STRETCH_S, LEAST_STRETCHES = 0.25, 3
RESERVE = 0.94  # the rest goes into evaluation and saving


def steps_of_epochs(recipe: Recipe, tokens: int, epochs: float) -> int:
    """Steps that read the corpus `epochs` times: a step of phase i holds batch × length_i tokens."""
    return max(1, round(epochs * tokens / tokens_per_step(recipe)))


def steps_of_tokens(recipe: Recipe, tokens: int) -> int:
    """Steps that see `tokens` tokens, to within half a step; less than one step is refused."""
    per_step = tokens_per_step(recipe)
    if tokens < per_step:
        raise UsageError(
            f"one step of {recipe.name} holds {per_step:,.0f} tokens, more than --tokens {tokens:,}; "
            "give more, or a smaller batch (--set batch=…)"
        )
    near = round(tokens / per_step)  # phases have whole steps: of few steps, a neighbour may come closer

    def apart(steps: int) -> float:
        counts = zip(steps_of_phases(recipe.phases, steps), recipe.phases, strict=True)
        return abs(sum(count * recipe.batch * phase.length for count, phase in counts) - tokens)

    return min(range(max(1, near - 3), near + 4), key=lambda steps: (apart(steps), steps))


def tokens_per_step(recipe: Recipe) -> float:
    """The mean over phases, as the shares of their steps weigh them."""
    return sum(phase.share * recipe.batch * phase.length for phase in recipe.phases)


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
    """The median over short stretches: a step for which something is compiled once more says nothing of the others."""
    prepared = (stepper.prepare(batch, limit=length) for batch, _ in stepper.read(loader))
    with closing(ahead(prepared, close=loader.close)) as ready:  # as the run itself does
        for _ in range(2):
            stepper.launch(next(ready), step=0, rate=0.0).check()
        began, seconds = time.monotonic(), list[float]()
        while len(seconds) < LEAST_STRETCHES or stepper.update.ranks.any(time.monotonic() - began < MEASURED_S):
            seconds.append(_stretch(stepper, ready))
        return statistics.median(seconds)


def _stretch(stepper: Stepper, ready: Iterator[ReadyStep]) -> float:
    """Seconds a step, over as many as fill a moment."""
    began, steps = time.monotonic(), 0
    while not steps or stepper.update.ranks.any(time.monotonic() - began < STRETCH_S):  # all ranks take as many
        report = stepper.launch(next(ready), step=0, rate=0.0)
        steps += 1
    report.check()  # waits for the last one
    return (time.monotonic() - began) / steps


def steps_wanted(recipe: Recipe, budget: Budget, tokens: int) -> int | None:
    """The number of steps where it is known without measuring."""
    if budget.minutes is not None:
        return None
    if budget.epochs is not None:
        return steps_of_epochs(recipe, tokens, budget.epochs)
    if budget.tokens is not None:
        return steps_of_tokens(recipe, budget.tokens)
    return budget.steps or recipe.schedule.steps
