"""What to pretrain, on what, where to, and for how long.

Job(recipe=read_recipe("bert", size="tiny"), out=Path("runs/mine"), budget=Budget(steps=1_000))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from larvatus.core.errors import UsageError
from larvatus.core.ranges import SEED, STEPS
from larvatus.models.recipes import Recipe
from larvatus.training.engine.settings import Budget, Parallel, Runtime
from larvatus.training.pretraining.origin import Origin


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train, on what, where, and for how long."""

    recipe: Recipe
    out: Path
    runtime: Runtime = field(default_factory=Runtime)
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    """Begin anew where a run or a model stands: its checkpoints go at once, its model when the new one is saved."""
    fork: bool = False
    """Resume although the recipe was edited."""
    evaluate_every: int | None = None
    save_every: int | None = None
    tensorboard: bool = False
    parallel: Parallel = "auto"
    """How several processes share the work (`training/engine/parallel.py`)."""
    origin: Origin | None = None
    """The model to go on from; a new one is initialised where there is none."""
    free: frozenset[str] = frozenset()
    """What of "batch" and "rate" a plan may choose (`plan.py`), because the user has set neither it nor a recipe."""
    deadline: float | None = None
    """When training must end, as `time.monotonic` gives it: with fewer steps where the machine is busy."""
    brief: bool = False
    """One of several runs: show a bar or a line now and then, and what went wrong; who started it tells the rest."""

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
