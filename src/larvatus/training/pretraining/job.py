"""A pretraining job: what to train, on what, where to, and for how long.

    job = PretrainingJob(recipe=read_recipe("bert", size="tiny"), out=Path("runs/mine"), budget=Budget(steps=1_000))
    with ranks(job.runtime.device, job.runtime.rank_timeout) as group:
        job = agree_on_job(job, group)

Before any rank reads text, all ranks check that they have the same job, and whether they resume. `torchrun
--max-restarts 3` starts all ranks again, with the same command, when one has failed: they resume from the last
checkpoint, as many as there are now.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from larvatus.core.errors import UsageError
from larvatus.core.ranges import SEED, STEPS
from larvatus.models.recipes import Recipe, recipe_table
from larvatus.training.engine.ranks import Ranks, check_ranks_agree, versions
from larvatus.training.engine.settings import Budget, Parallel, Runtime
from larvatus.training.pretraining.parent import ParentModel


@dataclass(frozen=True, kw_only=True)
class PretrainingJob:
    """What to train, on what, where, and for how long."""

    recipe: Recipe
    out: Path
    runtime: Runtime = field(default_factory=Runtime)
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    """Begin again where there is a run or a model: its checkpoints go at once, its model when the new one is saved."""
    fork: bool = False
    """Resume although the recipe was edited."""
    evaluate_every: int | None = None
    save_every: int | None = None
    tensorboard: bool = False
    parallel: Parallel = "auto"
    """How several processes share the work (`training/engine/parallel.py`)."""
    origin: ParentModel | None = None
    """The model to continue from; a new one is initialised where there is none."""
    free: frozenset[str] = frozenset()
    """What of "batch" and "rate" a plan may choose (`plan.py`), because the user has set neither it nor a recipe."""
    deadline: float | None = None
    """When training must end, as `time.monotonic` gives it: with fewer steps where the machine is busy."""
    brief: bool = False
    """One of several runs: show a bar or a line now and then, and what went wrong; the caller reports the rest."""

    def __post_init__(self) -> None:
        SEED.check(self.seed, "--seed")
        for option, every in (("--evaluate-every", self.evaluate_every), ("--save-every", self.save_every)):
            STEPS.check(1 if every is None else every, option)
        if self.fork and not self.resume:
            raise UsageError("--fork goes with --resume")
        if self.parallel not in get_args(Parallel):
            raise UsageError(f"--parallel is one of {', '.join(get_args(Parallel))}, not {self.parallel!r}")
        if self.parallel == "shard" and self.origin is not None:
            raise UsageError("--parallel shard trains new models; with --from, give --parallel replicate")

    @property
    def may_shard(self) -> bool:
        """Whether processes may each have a part of the weights."""
        return self.parallel != "replicate" and self.origin is None


PER_MACHINE = ("workers", "memory", "rank_timeout")
"""Fields of the runtime that may differ between machines."""


def agree_on_job(job: PretrainingJob, group: Ranks) -> PretrainingJob:
    """The job that all ranks carry out; refused where their commands differ."""
    check_ranks_agree(group, _commanded(job))
    if not group.restarted:
        return job
    return dataclasses.replace(job, resume=True, overwrite=False)


def _commanded(job: PretrainingJob) -> dict[str, object]:
    """Options and versions that must be the same on every rank."""
    runtime = {name: value for name, value in dataclasses.asdict(job.runtime).items() if name not in PER_MACHINE}
    return {
        **versions(),
        "recipe": recipe_table(job.recipe),
        "seed": job.seed,
        "resume": job.resume,
        "fork": job.fork,
        "evaluate_every": job.evaluate_every,
        "save_every": job.save_every,
        "from": None if job.origin is None else job.origin.fingerprint,
        **runtime,
        **dataclasses.asdict(job.budget),
    }
