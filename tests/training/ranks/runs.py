"""Small runs of pretraining, in this process or on several ranks: what they learnt, and what each rank corrupted."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from larvatus.core.signals import Stop
from larvatus.data.corpus.block_maker import BlockMaker
from larvatus.interfaces.api.finetuning import RunRequest, prepare_finetuning
from larvatus.models.network import Network
from larvatus.models.recipes import read_recipe
from larvatus.tasks.trainer.config import parse_arguments as finetuning_job
from larvatus.training.engine import parallel
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.parallel import ReplicatedGradients
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.monitor import Monitor
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import PretrainingRun
from larvatus.training.pretraining.step import Stepper
from tests.shared import SMALL as SMALL_MODEL
from tests.training.engine.test_out_of_memory import room_for, steps
from tests.training.engine.test_step import NO_DROPOUT, batch_of, stepper

SMALL = ("model.layers=2", "model.hidden=32", "model.heads=2", "batch=16", "optimizer.rate=1e-3")
RECIPES = {
    "bert": (*SMALL, "phases.0.length=32", "phases.1.length=64", "model.max_positions=64"),
    "electra": (*SMALL, "phases.0.length=32", "model.max_positions=64", "model.embedding=32"),
    "gpt": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
    "gpt2": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
    "roberta": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
    "spanbert": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
    "albert": (*SMALL, "phases.0.length=32", "model.max_positions=64", "optimizer.type=adamw"),
    "modern": (*SMALL, "phases.0.length=32", "phases.1.length=64", "model.max_positions=64"),
    "t5": (*SMALL, "phases.0.length=32", "model.max_positions=64", "optimizer.type=adamw"),
    "xlnet": (*SMALL, "phases.0.length=32", "model.max_positions=64"),
    "elmo": (
        "model.layers=2",
        "model.hidden=16",
        "model.cells=16",
        "model.symbol=4",
        "model.filters=[4, 4, 4]",
        "model.highways=1",
        "model.clip=0.0",
        "batch=8",
        "phases.0.length=64",
        "optimizer.rate=1e-3",
        "optimizer.type=adamw",
        "objectives.forward-lm.samples=20",
        "objectives.backward-lm.samples=20",
    ),
}
MICROBATCH = 128
"""Tokens: a step has at least four microbatches, so that one process draws the dropout of four."""


def parse_arguments(given: dict[str, Any]) -> PretrainingJob:
    name = given["recipe"]
    return PretrainingJob(
        recipe=read_recipe(name, settings=[*RECIPES[name], *given.get("settings", ())]),
        out=Path(given["out"]),
        runtime=Runtime(
            microbatch=given.get("microbatch", MICROBATCH),
            workers=given.get("workers", 0),
            compile=given.get("compile", False),
        ),
        budget=Budget(steps=given["steps"]),
        parallel=given.get("parallel", "auto"),
        resume=given.get("resume", False),
        origin=ParentModel.load(given["from"], out=Path(given["out"])) if "from" in given else None,
        embedding_share=given.get("embedding_share", 0.0),
        stay=given.get("stay", 0.0),
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
        prepared = PreparedCorpus(train=shards / "train", valid=shards / "valid" if given.get("valid") else None)
        run = PretrainingRun(parse_arguments(given), prepared, ranks=group, stop=Stop(), reporter=Reporter())
        run.execute()
    return {"losses": losses, "made": group.totals(made), "sharded": run.sharded}


def pretrain_several(group: Ranks, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pretrain(group, each) for each in given]


def out_of_memory(group: Ranks, _: Any) -> dict[str, Any]:
    """Memory runs out on the last rank alone: what both come to, and what they come to with that microbatch given."""
    recipe = read_recipe("bert", settings=[*SMALL_MODEL, "model.dropout=0.3"])
    short, given = (stepper(recipe, microbatch=microbatch, ranks=group) for microbatch in (72, 36))
    with room_for(50) if group.rank == group.count - 1 else nullcontext():
        losses = steps(short, 0, 3)
    return {"losses": losses, "given": steps(given, 0, 3), "microbatch": short.update.microbatch}


class Tied(nn.Module):
    """A weight used twice, one that only even inputs reach, and one that nothing does."""

    def __init__(self) -> None:
        super().__init__()
        self.tied, self.even, self.never = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.again = self.tied

    def forward(self, number: int) -> Tensor:
        x = self.again(self.tied(torch.arange(4.0) + number).relu())
        return (self.even(x) if number % 2 == 0 else x).square().sum()


def reduced(group: Ranks, _: Any) -> dict[str, Any]:
    """Gradients of four passes dealt out to the ranks, and of all four here; those that there are."""
    torch.manual_seed(0)
    model = Tied()
    alone = copy.deepcopy(model)
    sum(alone(number) for number in range(4)).backward()
    gradients = ReplicatedGradients(list(model.parameters()), group)
    gradients.begin()
    mine = [number for number in range(4) if group.takes(number)]
    for number in mine:
        with gradients.last() if number == mine[-1] else nullcontext():
            model(number).backward()
    failed = gradients.finish(failed=False)
    pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
    return {
        "failed": failed,
        "apart": max(float((a.grad - b.grad).abs().max()) for a, b in pairs if a.grad is not None),  # type: ignore[operator]
        "with": [name for name, p in model.named_parameters() if p.grad is not None],
        "alone": [name for name, p in alone.named_parameters() if p.grad is not None],
        "flat": all(p.grad is None or p.grad._is_view() for p in model.parameters()),
    }


def uneven(group: Ranks, _: Any) -> dict[str, Any]:
    """Steps of three microbatches on sharded weights, where a rank has one less; and the same in one process."""
    recipe = read_recipe("bert", settings=[*SMALL_MODEL, *NO_DROPOUT])
    losses = {}
    for name, ranks in (("alone", Ranks()), ("sharded", group)):
        model = Network.build(recipe.model, recipe.objectives, 50, seed=0)
        if name == "sharded":
            parallel.shard(model, "cpu")
        runtime, optimizer = Runtime(microbatch=32), adamw(model, recipe.optimizer)
        trained = Stepper(model, optimizer, recipe, runtime=runtime, ranks=ranks, seed=1, pad_id=0)
        batches = [batch_of([30, 30, 30], seed=step) for step in range(3)]
        assert len(list(batches[0].split(32, group.count))) == 3
        losses[name] = [
            trained(batch, step=step, rate=1e-3, limit=48).losses["masked-lm"] for step, batch in enumerate(batches)
        ]
    return losses


def finetuned(group: Ranks, given: dict[str, str]) -> list[float]:
    """The training losses of a classifier, dropout included: the microbatch cuts a step into two in one process too."""
    job = finetuning_job("classify", {"epochs": 2, "batch": 8, "microbatch": 32, "device": "cpu"})
    files = {name: given[name] for name in ("train", "dev")}
    asked = prepare_finetuning("classify", given["model"], RunRequest(columns={}), **files, out=Path())
    tuned = asked.finetune(asked.train, dataclasses.replace(job, ranks=group))
    return [epoch.training_loss for epoch in tuned.runs[0].history]


def chosen_by_memory(group: Ranks, _: Any) -> list[bool]:
    """Where there is enough on all ranks, where there is too little on one, and for an optimizer that cannot."""
    model = nn.Linear(100, 100)
    sharded = []
    for free, optimizer in ((10**9, "adamw"), (10**5 if group.main else 10**9, "adamw"), (1, "lamb")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parallel, "free_memory", lambda device, free=free: free)
            sharded.append(parallel.should_shard("auto", ranks=group, model=model, optimizer=optimizer, device="cpu"))
    return sharded


def everything(group: Ranks, given: Any) -> dict[str, Any]:
    """All of the above in one start of processes."""
    return {
        "runs": pretrain_several(group, given["runs"]),
        "memory": out_of_memory(group, None),
        "reduced": reduced(group, None),
        "chosen": chosen_by_memory(group, None),
        "uneven": uneven(group, None),
        "finetuned": finetuned(group, given["finetune"]),
    }
