"""Makes the plan of a run, or reads the one that it began with, and says it before the first step.

    planned = make_plan(job, model, loader=run.loader, text=480_000, evaluations=4, ranks=ranks)
    planned.job.recipe, planned.plan               # the recipe that the run follows
    plan_in_words(planned.job, 8, planned.plan, 480_000)

Times are measured on the model itself (`budget.time_of_step`), whose weights are put back afterwards.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from larvatus.data.corpus.loader import Loader
from larvatus.models.network import Network
from larvatus.models.recipes import steps_of_phases
from larvatus.training.engine.distribution import Ranks
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.pretraining.budget import refuse_too_short, steps_of_minutes, time_of_step
from larvatus.training.pretraining.job import Job
from larvatus.training.pretraining.plan import (
    EVALUATION,
    Plan,
    Scope,
    StepTime,
    most_steps,
    plan_for,
    read_plan,
    write_plan,
)
from larvatus.training.pretraining.step import Stepper

MOST_ALONG = 10
"""Evaluations along the way."""
ALONG = 0.05
"""Share of the minutes that they may take."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job with its plan."""

    job: Job
    plan: Plan | None = None
    began: float = 0.0
    """When the minutes of the budget began, as `time.monotonic` gives it."""

    def evaluated(self, most: int) -> int:
        """Held-out tokens of an evaluation that would read `most`."""
        return (
            most if self.plan is None or self.plan.evaluated_tokens is None else min(most, self.plan.evaluated_tokens)
        )


def make_plan(
    job: Job, model: Network, *, loader: Callable[..., Loader], text: int, evaluations: int, ranks: Ranks
) -> Planned:
    """The job as it is carried out. `text` is in tokens; `loader(phase, batch=…)` gives it in small steps."""
    began = time.monotonic()
    if not job.free:
        return Planned(job=job, began=began)
    plan = read_plan(job.out) if job.resume else None
    if plan is None:
        minutes = job.budget.minutes
        speed = None if minutes is None else step_time(job, model, loader=loader, text=text, ranks=ranks)
        spent = ranks.gather(time.monotonic() - began)[0]
        scope = Scope(free=job.free, text=text, evaluations=evaluations, spent=spent)
        plan = plan_for(job.recipe, scope, job.budget, speed)
        if ranks.main:
            job.out.mkdir(parents=True, exist_ok=True)
            write_plan(job.out, plan)
    followed = dataclasses.replace(job, recipe=plan.recipe(job.recipe))
    if job.evaluate_every is None and plan.steps is not None:
        followed = dataclasses.replace(followed, evaluate_every=_every(plan.steps, evaluations))
    return Planned(job=followed, plan=plan, began=began)


def _every(steps: int, evaluations: int) -> int:
    """Steps between evaluations along the way: as many as fit into their share of the minutes."""
    return max(1, -(-steps // (1 + min(MOST_ALONG, int(ALONG / EVALUATION * evaluations)))))


def step_time(job: Job, model: Network, *, loader: Callable[..., Loader], text: int, ranks: Ranks) -> StepTime:
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


def steps_here(
    planned: Planned, stepper: Stepper, *, loader: Callable[..., Loader], text: int, sharded: bool = False
) -> int:
    """The minutes of the budget in steps; the weights are as they were afterwards.

    Steps that are too slow to be timed are told by smaller ones, and a budget without room for a few is refused. But
    what must end in time whatever the machine does (`deadline`) makes the steps that fit.
    """
    job, plan, model = planned.job, planned.plan, stepper.model
    if plan is not None and plan.steps is not None:
        return plan.steps
    began = time.monotonic() if plan is None else planned.began
    if plan is None and not (job.runtime.compile or job.deadline is not None or sharded):
        speed = step_time(job, model, loader=loader, text=text, ranks=stepper.update.ranks)
        if (steps := refuse_too_short(job.recipe, job.budget, speed)) is not None:
            return steps
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    steps = steps_of_minutes(job.recipe, job.budget.minutes or 0, stepper=stepper, loader=loader, began=began)
    model.load_state_dict(before)
    return steps if plan is None else min(steps, most_steps(job.recipe, plan.batch, text))


def plan_in_words(job: Job, steps: int, plan: Plan | None, text: int) -> str:
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
