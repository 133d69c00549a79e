"""What the ranks of a run settle before any of them reads text: that they do the same, and whether they go on.

    with ranks(job.runtime.device, job.runtime.rank_timeout) as group:
        job = joined(job, group)

`torchrun --max-restarts 3` starts all ranks anew, with the same command, when one has failed: they go on from the last
checkpoint, as many as there are now.
"""

from __future__ import annotations

import dataclasses

from larvatus.models.recipes import recipe_table
from larvatus.training.engine.agreement import agree, programs
from larvatus.training.engine.distribution import Ranks
from larvatus.training.pretraining.job import Job

OF_A_MACHINE = ("workers", "memory", "rank_timeout")
"""Of the runtime: what each machine may have otherwise."""


def joined(job: Job, group: Ranks) -> Job:
    """The job that all ranks carry out; refused where they were told different things."""
    agree(group, _commanded(job))
    if not group.restarted:
        return job
    return dataclasses.replace(job, resume=True, overwrite=False)


def _commanded(job: Job) -> dict[str, object]:
    """What the command of every rank must say alike, and what must run it."""
    runtime = {name: value for name, value in dataclasses.asdict(job.runtime).items() if name not in OF_A_MACHINE}
    return {
        **programs(),
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
