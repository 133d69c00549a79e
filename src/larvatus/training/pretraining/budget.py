"""How many steps: given, from epochs or tokens, or from minutes.

Minutes are measured into steps before the run begins, so that the run itself depends on nothing but recipe, corpus and
seed, and can be repeated with `--steps`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from larvatus.core.errors import UsageError
from larvatus.data.corpus.loader import Loader
from larvatus.models.recipes import Recipe, steps_of_phases
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.loop import ahead
from larvatus.training.pretraining.plan import LEAST_STEPS, RESERVE, SMALL_TOKENS, StepTime, steps_within, too_short
from larvatus.training.pretraining.step import ReadyStep, Stepper

MEASURED_S = 4.0
STRETCH_S, LEAST_STRETCHES = 0.25, 3
QUICK_S = 0.5
MEASURED_SHARE = 0.15
"""Of the minutes: steps that would take more of them to be timed are judged by smaller ones."""


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


def time_of_step(stepper: Stepper, loader: Callable[[int], Loader], *, batch: int, length: int) -> StepTime:
    """What a step takes, told by two small ones: a sequence, and as many as a small step has.

    `loader` gives the text in steps of that many sequences. The weights move while measuring.
    """
    least, seconds = _timed(stepper, loader(1), length)
    several = min(batch, max(1, SMALL_TOKENS // length))
    if several == 1:
        return StepTime(fixed=0.0, per_token=seconds / least)
    most, longer = _timed(stepper, loader(several), length)
    rising = (longer - seconds) / max(1, most - least)
    per_token = max(rising, longer / most / 4)  # on a busy machine the small step may have been the slow one
    return StepTime(fixed=max(0.0, longer - per_token * most), per_token=per_token)


def _timed(stepper: Stepper, loader: Loader, length: int) -> tuple[int, float]:
    """Tokens and seconds of a step, the median of three where it is quick; the first one warms up."""
    prepared = (stepper.prepare(batch, limit=length) for batch, _ in stepper.read(loader))
    seconds: list[float] = []
    with closing(ahead(prepared, close=loader.close)) as ready:
        while True:
            step = next(ready)
            began = time.monotonic()
            stepper.launch(step, step=0, rate=0.0).check()
            seconds.append(time.monotonic() - began)
            slow = not stepper.update.ranks.any(seconds[0] < QUICK_S)
            if slow or len(seconds) > 3:
                return step.tokens, statistics.median(seconds[-3:])


def refuse_too_short(recipe: Recipe, budget: Budget, speed: StepTime) -> int | None:
    """Refuse minutes that have no room for a few steps of this recipe; steps, where timing them would take too long."""
    seconds = 60 * (budget.minutes or 0.0)
    steps = steps_within(recipe, recipe.batch, RESERVE * seconds, speed)
    if steps < LEAST_STEPS:
        raise too_short(recipe, recipe.batch, budget, speed)
    timing = (LEAST_STRETCHES + 2) * sum(speed.seconds(recipe.batch * phase.length) for phase in recipe.phases)
    return steps if timing > MEASURED_SHARE * seconds else None


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
