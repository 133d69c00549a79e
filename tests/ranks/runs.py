"""Small runs of pretraining, in this process or on several ranks: what they learnt, and what each rank corrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larvatus.corpus.block_maker import BlockMaker
from larvatus.engine.distribution import Ranks
from larvatus.engine.settings import Budget, Runtime
from larvatus.engine.watch import Watcher
from larvatus.pretraining.job import Job
from larvatus.pretraining.monitor import Monitor
from larvatus.pretraining.prepare import Prepared
from larvatus.pretraining.run import Run
from larvatus.recipes import read_recipe
from larvatus.signals import Stop

SMALL = ("model.layers=2", "model.hidden=32", "model.heads=2", "batch=16", "optimizer.rate=1e-3")
RECIPES = {
    "bert": (*SMALL, "phases.0.length=32", "phases.1.length=64", "model.max_positions=64"),
    "electra": (*SMALL, "phases.0.length=32", "model.max_positions=64", "model.embedding=32"),
    "gpt": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
}
MICROBATCH = 128
"""Tokens: a step has at least four microbatches, so that one process draws the dropout of four."""


def job_of(given: dict[str, Any]) -> Job:
    name = given["recipe"]
    return Job(
        recipe=read_recipe(name, settings=[*RECIPES[name], *given.get("settings", ())]),
        out=Path(given["out"]),
        runtime=Runtime(microbatch=given.get("microbatch", MICROBATCH), workers=given.get("workers", 0)),
        budget=Budget(steps=given["steps"]),
        parallel=given.get("parallel", "auto"),
        resume=given.get("resume", False),
        evaluate_every=given.get("evaluate_every"),
        save_every=given.get("save_every"),
    )


def pretrain(group: Ranks, given: dict[str, Any]) -> dict[str, Any]:
    """A run: the loss of each step, and the tokens that each rank laid out and corrupted."""
    losses: list[float] = []
    made = [0] * group.count
    with pytest.MonkeyPatch.context() as patch:
        step = Monitor.step

        def noted(self: Monitor, report: Any) -> None:
            losses.append(report.loss)
            step(self, report)

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def make(*arguments: Any) -> Any:
                batch = real(*arguments)
                made[group.rank] += batch.tokens.size
                return batch

            return make

        patch.setattr(Monitor, "step", noted)
        for name in ("make", "sequences"):
            patch.setattr(BlockMaker, name, counted(getattr(BlockMaker, name)))
        shards = Path(given["shards"])
        prepared = Prepared(train=shards / "train", valid=shards / "valid" if given.get("valid") else None)
        run = Run(job_of(given), prepared, ranks=group, stop=Stop(), watcher=Watcher())
        run.execute()
    return {"losses": losses, "made": group.totals(made), "sharded": run.sharded}


def pretrain_several(group: Ranks, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pretrain(group, each) for each in given]
