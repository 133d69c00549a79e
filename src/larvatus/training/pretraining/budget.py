"""How many steps a run has: given, from epochs or tokens, or from minutes; and the plan that it follows.

Minutes are converted to steps before the run begins, so the run itself depends only on recipe, corpus and seed, and can
be repeated with `--steps`.

    planned = make_plan(job, model, loader=run.loader, text=480_000, evaluations=4, ranks=ranks)
    planned.job.recipe, planned.plan               # the recipe that the run follows
    describe_plan(planned.job, 8, planned.plan, 480_000)

A resumed run reads the plan that it began with. Times are measured on the model itself (`time_of_step`), whose weights
are restored afterwards.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from larvatus.core.errors import UsageError
from larvatus.data.corpus.loader import Loader
from larvatus.models.network import Network
from larvatus.models.recipes import Recipe, steps_of_phases
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.loop import prefetch
from larvatus.training.pretraining.plan import (
    EVALUATION,
    LEAST_STEPS,
    RESERVE,
    SMALL_TOKENS,
    AdaptationPlan,
    PlanScope,
    StepTime,
    budget_too_short,
    most_steps,
    plan_for,
    read_plan,
    steps_within,
    tokens_per_step,
    write_plan,
)
from larvatus.training.pretraining.step import PreparedStep, Stepper

MEASURED_S = 4.0
STRETCH_S, LEAST_STRETCHES = 0.25, 3
QUICK_S = 0.5
MEASURED_SHARE = 0.15
"""Share of the minutes that timing may take; beyond it, smaller steps are timed instead."""

MAX_EVALUATIONS = 10
"""Evaluations along the way."""
EVALUATION_SHARE = 0.05
"""Share of the minutes that they may take."""


def steps_of_epochs(recipe: Recipe, tokens: int, epochs: float) -> int:
    """Steps that read the corpus `epochs` times: a step of phase i holds batch × length_i tokens."""
    return max(1, round(epochs * tokens / tokens_per_step(recipe, recipe.batch)))


def steps_of_tokens(recipe: Recipe, tokens: int) -> int:
    """Steps that see `tokens` tokens, to within half a step; less than one step is refused."""
    per_step = tokens_per_step(recipe, recipe.batch)
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
    """What a step takes, estimated from two small ones: a sequence, and as many as a small step has.

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
    with closing(prefetch(prepared, close=loader.close)) as ready:
        while True:
            step = next(ready)
            began = time.monotonic()
            stepper.launch(step, step=0, rate=0.0).check()
            seconds.append(time.monotonic() - began)
            slow = not stepper.update.ranks.any(seconds[0] < QUICK_S)
            if slow or len(seconds) > 3:
                return step.tokens, statistics.median(seconds[-3:])


def check_minutes(recipe: Recipe, budget: Budget, speed: StepTime) -> int | None:
    """Refuse minutes that are too few for some steps of this recipe; steps, if timing them would take too long."""
    seconds = 60 * (budget.minutes or 0.0)
    steps = steps_within(recipe, recipe.batch, RESERVE * seconds, speed)
    if steps < LEAST_STEPS:
        raise budget_too_short(recipe, recipe.batch, budget, speed)
    timing = (LEAST_STRETCHES + 2) * sum(speed.seconds(recipe.batch * phase.length) for phase in recipe.phases)
    return steps if timing > MEASURED_SHARE * seconds else None


def _seconds_per_step(stepper: Stepper, loader: Loader, length: int) -> float:
    """The median over short stretches: a step for which something is compiled once more says nothing of the others."""
    prepared = (stepper.prepare(batch, limit=length) for batch, _ in stepper.read(loader))
    with closing(prefetch(prepared, close=loader.close)) as ready:  # as the run itself does
        for _ in range(2):
            stepper.launch(next(ready), step=0, rate=0.0).check()
        began, seconds = time.monotonic(), list[float]()
        while len(seconds) < LEAST_STRETCHES or stepper.update.ranks.any(time.monotonic() - began < MEASURED_S):
            seconds.append(_stretch(stepper, ready))
        return statistics.median(seconds)


def _stretch(stepper: Stepper, ready: Iterator[PreparedStep]) -> float:
    """Seconds a step, over as many as fill a moment."""
    began, steps = time.monotonic(), 0
    while not steps or stepper.update.ranks.any(time.monotonic() - began < STRETCH_S):  # all ranks take as many
        report = stepper.launch(next(ready), step=0, rate=0.0)
        steps += 1
    report.check()  # waits for the last one
    return (time.monotonic() - began) / steps


def known_steps(recipe: Recipe, budget: Budget, tokens: int) -> int | None:
    """The number of steps where it is known without measuring."""
    if budget.minutes is not None:
        return None
    if budget.epochs is not None:
        return steps_of_epochs(recipe, tokens, budget.epochs)
    if budget.tokens is not None:
        return steps_of_tokens(recipe, budget.tokens)
    return budget.steps or recipe.schedule.steps


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job with its plan."""

    job: PretrainingJob
    plan: AdaptationPlan | None = None
    began: float = 0.0
    """When the minutes of the budget began, as `time.monotonic` gives it."""

    def evaluated(self, most: int) -> int:
        """Held-out tokens of an evaluation that would read `most`."""
        limit = None if self.plan is None else self.plan.evaluated_tokens
        return most if limit is None else min(most, limit)


def make_plan(
    job: PretrainingJob, model: Network, *, loader: Callable[..., Loader], text: int, evaluations: int, ranks: Ranks
) -> PlannedJob:
    """The job as it is carried out. `text` is in tokens; `loader(phase, batch=…)` gives it in small steps."""
    began = time.monotonic()
    if not job.free:
        return PlannedJob(job=job, began=began)
    plan = read_plan(job.out) if job.resume else None
    if plan is None:
        minutes = job.budget.minutes
        speed = None if minutes is None else step_time(job, model, loader=loader, text=text, ranks=ranks)
        spent = ranks.gather(time.monotonic() - began)[0]
        scope = PlanScope(free=job.free, text=text, evaluations=evaluations, spent=spent)
        plan = plan_for(job.recipe, scope, job.budget, speed)
        if ranks.main:
            job.out.mkdir(parents=True, exist_ok=True)
            write_plan(job.out, plan)
    followed = dataclasses.replace(job, recipe=plan.recipe(job.recipe))
    if job.evaluate_every is None and plan.steps is not None:
        followed = dataclasses.replace(followed, evaluate_every=_every(plan.steps, evaluations))
    return PlannedJob(job=followed, plan=plan, began=began)


def _every(steps: int, evaluations: int) -> int:
    """Steps between evaluations along the way: as many as fit into their share of the minutes."""
    return max(1, -(-steps // (1 + min(MAX_EVALUATIONS, int(EVALUATION_SHARE / EVALUATION * evaluations)))))


def step_time(
    job: PretrainingJob, model: Network, *, loader: Callable[..., Loader], text: int, ranks: Ranks
) -> StepTime:
    """What a step of this job takes on this machine; the weights are as they were afterwards."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    length = job.recipe.phases[0].length
    stepper = Stepper(
        model,
        build_optimizer(model, job.recipe.optimizer),
        job.recipe,
        runtime=dataclasses.replace(job.runtime, compile=False),  # each size would be compiled for itself
        ranks=ranks,
        seed=job.seed,
        pad_id=0,
    )
    most = max(1, min(job.recipe.batch, text // length))
    speed = time_of_step(stepper, lambda batch: loader(0, batch=batch), batch=most, length=length)
    model.load_state_dict(before)
    return ranks.gather(speed)[0]


def measure_steps(
    planned: PlannedJob, stepper: Stepper, *, loader: Callable[..., Loader], text: int, sharded: bool = False
) -> int:
    """The minutes of the budget in steps; the weights are as they were afterwards.

    The time of steps that are too slow to be timed is estimated from smaller ones. A budget that is too short is
    refused; but a run that must end in time on any machine (`deadline`) makes the steps that fit.
    """
    job, plan, model = planned.job, planned.plan, stepper.model
    if plan is not None and plan.steps is not None:
        return plan.steps
    began = time.monotonic() if plan is None else planned.began
    if plan is None and not (job.runtime.compile or job.deadline is not None or sharded):
        speed = step_time(job, model, loader=loader, text=text, ranks=stepper.update.ranks)
        if (steps := check_minutes(job.recipe, job.budget, speed)) is not None:
            return steps
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    steps = steps_of_minutes(job.recipe, job.budget.minutes or 0, stepper=stepper, loader=loader, began=began)
    model.load_state_dict(before)
    return steps if plan is None else min(steps, most_steps(job.recipe, plan.batch, text))


def describe_plan(job: PretrainingJob, steps: int, plan: AdaptationPlan | None, text: int) -> str:
    """The line before the first step.

    "plan: 8 steps of 4,096 tokens in 2 minutes (2 of warm-up), 0.1 passes over the text"
    """
    recipe = job.recipe
    counts = [
        (n, recipe.batch * p.length) for n, p in zip(steps_of_phases(recipe.phases, steps), recipe.phases, strict=True)
    ]
    parts = [f"{count:,} step{'s' * (count > 1)} of {tokens:,} tokens" for count, tokens in counts if count]
    passes = sum(count * tokens for count, tokens in counts) / max(1, text)
    minutes = "" if job.budget.minutes is None else f" in {job.budget.minutes:g} minutes"
    warmup = f"{recipe.schedule.warmup_steps(steps):,} of warm-up"
    changed = "" if plan is None or plan.rate_scale == 1.0 else f", rate {recipe.optimizer.rate:.2g}"
    return f"plan: {' and '.join(parts)}{minutes} ({warmup}{changed}), {passes:,.1f} passes over the text"
