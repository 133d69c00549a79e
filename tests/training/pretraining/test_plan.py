"""Adapting a model: batch, rate and steps follow machine, budget and text; a resumed run follows the plan it began."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.recipes import Recipe, read_recipe, steps_of_phases
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining import budget as budget_module
from larvatus.training.pretraining.adapt import adapted_recipe
from larvatus.training.pretraining.budget import check_minutes
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.plan import (
    LEAST_STEPS,
    MANY_STEPS,
    MOST_EPOCHS,
    SMALL_TOKENS,
    AdaptationPlan,
    PlanScope,
    StepTime,
    plan_for,
    steps_within,
)
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import PretrainingRun, train
from tests.shared import SMALL

FREE = frozenset({"batch", "rate"})
CPU = StepTime(fixed=4.0, per_token=0.002)
"""About what a step of the packaged model takes on two cores."""


@pytest.fixture(scope="module")
def english() -> Recipe:
    """A recipe like the packaged model's: 98,304 tokens a step, Muon, a long phase at the end."""
    phases = "phases=[{length = 128, share = 0.97}, {length = 512, share = 0.03}]"
    return read_recipe("modern", settings=["batch=768", phases, "optimizer.type=muon", "optimizer.rate=2e-3"])


def planned_seconds(recipe: Recipe, plan: AdaptationPlan, speed: StepTime) -> float:
    """By a loop over the steps."""
    assert plan.steps is not None
    lengths = [
        p.length
        for p, n in zip(recipe.phases, steps_of_phases(recipe.phases, plan.steps), strict=True)
        for _ in range(n)
    ]
    return sum(speed.fixed + speed.per_token * plan.batch * length for length in lengths)


def test_two_minutes_of_a_cpu_become_a_few_small_steps(english: Recipe) -> None:
    plan = plan_for(english, PlanScope(free=FREE, text=480_000), Budget(minutes=2), CPU)
    followed = plan.recipe(english)
    assert followed.batch * 128 == SMALL_TOKENS
    assert plan.steps is not None
    assert LEAST_STEPS <= plan.steps < 20
    scale = math.sqrt(32 / 768)
    assert followed.optimizer.rate == pytest.approx(2e-3 * scale)
    assert followed.optimizer.hidden.rate == pytest.approx(english.optimizer.hidden.rate * scale)
    assert followed.schedule.warmup_steps(plan.steps) <= plan.steps // 4 + 1
    assert plan.evaluated_tokens is not None
    assert plan.evaluated_tokens * 4 * CPU.per_token / 3 <= 0.21 * 120


@pytest.mark.parametrize("minutes", [2, 3, 5, 10, 60, 600])
@pytest.mark.parametrize("speed", [CPU, StepTime(0.5, 0.0005), StepTime(0.0, 0.004)])
def test_a_plan_fits_into_its_minutes(english: Recipe, minutes: float, speed: StepTime) -> None:
    plan = plan_for(english, PlanScope(free=FREE, text=100_000_000), Budget(minutes=minutes), speed)
    if plan.steps is None:  # measured at that batch
        assert steps_within(english, plan.batch, 60 * minutes, speed) >= MANY_STEPS
    else:
        assert planned_seconds(english, plan, speed) <= 60 * minutes * 0.8


def test_more_time_makes_larger_steps_up_to_the_recipes(english: Recipe) -> None:
    batches = [
        plan_for(english, PlanScope(free=FREE, text=10**9), Budget(minutes=minutes), CPU).batch
        for minutes in (2, 10, 60, 600, 6000)
    ]
    assert batches == sorted(batches)
    assert (batches[0], batches[-1]) == (32, 768)
    unchanged = plan_for(english, PlanScope(free=FREE, text=10**9), Budget(minutes=10), StepTime(0.001, 1e-7))
    assert unchanged.recipe(english) == english


def test_what_cannot_fit_is_refused_with_what_would(english: Recipe) -> None:
    slow = StepTime(fixed=60.0, per_token=0.02)
    scope = PlanScope(free=FREE, text=480_000)
    with pytest.raises(UsageError, match=r"--minutes 2 is too short for 4 steps of 1,024 tokens") as refused:
        plan_for(english, scope, Budget(minutes=2), slow)
    offered = re.search(r"give --minutes ([\d.]+) or more", str(refused.value))
    assert offered
    enough = plan_for(english, scope, Budget(minutes=float(offered[1])), slow)
    assert enough.steps is not None
    assert enough.steps >= LEAST_STEPS


def test_a_batch_that_was_set_is_refused_with_one_that_fits(english: Recipe) -> None:
    """Whole steps of 98,304 tokens would take 200 seconds each: none of them is tried."""
    with pytest.raises(UsageError, match=r"steps of 98,304 tokens, which take about 201 seconds each") as refused:
        check_minutes(english, Budget(minutes=2), CPU)
    offered = re.search(r"--set batch=(\d+)", str(refused.value))
    assert offered
    assert steps_within(english, int(offered[1]), 120, CPU) >= LEAST_STEPS
    assert check_minutes(english, Budget(minutes=60), CPU) in range(LEAST_STEPS, 18)  # too slow to be timed
    assert check_minutes(english, Budget(minutes=600), CPU) is None


def test_small_texts_have_small_steps_and_are_not_read_for_ever(english: Recipe) -> None:
    text = 3_000
    for budget in (Budget(steps=20), Budget(epochs=3), Budget(tokens=30_000), Budget(minutes=300)):
        plan = plan_for(english, PlanScope(free=FREE, text=text), budget, CPU)
        assert plan.batch * 512 <= text  # what the loader needs for a step of the long phase
    assert plan.steps is not None
    assert plan.steps * plan.batch * 128 <= MOST_EPOCHS * text


def test_without_a_clock_a_plan_depends_on_the_text_alone(english: Recipe) -> None:
    scope = PlanScope(free=FREE, text=400_000)
    assert plan_for(english, scope, Budget(steps=60)).batch == 128  # 60 steps read it about three times
    assert plan_for(english, scope, Budget(epochs=3)).batch == 128
    large = PlanScope(free=FREE, text=100_000_000)
    assert plan_for(english, large, Budget(steps=60)).recipe(english) == english
    assert plan_for(english, large, Budget(epochs=3)).recipe(english) == english


def test_what_the_user_sets_is_kept(parent: Path) -> None:
    bundle = load_bundle(parent)
    assert adapted_recipe(bundle).free == FREE
    assert adapted_recipe(bundle, settings=["batch=7"]).free == frozenset()
    assert adapted_recipe(bundle, settings=["optimizer.rate=1e-5"]).free == {"batch"}
    assert adapted_recipe(bundle, "bert", settings=SMALL[4:7]).free == frozenset()


# — whole runs —


@pytest.fixture(scope="module")
def parent(prepared: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose recipe has steps of thousands of tokens."""
    out = tmp_path_factory.mktemp("parent") / "run"
    recipe = read_recipe("bert", settings=[*SMALL, "batch=256"])
    train(PretrainingJob(recipe=recipe, out=out, budget=Budget(steps=1)), lambda: prepared, Reporter())
    return out


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    sentences = [
        f"The {who} of the list returns the {what} of number {n}."
        for n in range(400)
        for who, what in [("end", "name")]
    ]
    path.write_text("\n\n".join("\n".join(sentences[n : n + 8]) for n in range(0, 400, 8)))
    return path


def adapt(parent: Path, text: Path, out: Path, **settings: Any) -> dict[str, Any]:
    lv.pretrain(start=parent, corpus=text, out=out, quiet=True, device="cpu", save_every=2, **settings)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {row["domain"]: row for row in rows if row["kind"] == "domain" and row["objective"] == "masked-lm"}


def machine(monkeypatch: pytest.MonkeyPatch, speed: StepTime) -> None:
    monkeypatch.setattr(budget_module, "time_of_step", lambda *_, **__: speed)


def test_a_killed_run_resumed_on_another_machine_follows_its_plan_to_the_bit(
    parent: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, StepTime(fixed=0.5, per_token=0.001))
    whole = adapt(parent, text, tmp_path / "whole", minutes=0.5)
    plan = json.loads((tmp_path / "whole" / "plan.json").read_text())
    assert plan["batch"] < 256
    assert plan["steps"] > 3

    class Killed(BaseException): ...

    saving = PretrainingRun._save_checkpoint

    def save_then_die(run: PretrainingRun, progress: Any, monitor: Any) -> None:
        saving(run, progress, monitor)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(PretrainingRun, "_save_checkpoint", save_then_die)
        with pytest.raises(Killed):
            adapt(parent, text, tmp_path / "cut", minutes=0.5)
    machine(monkeypatch, StepTime(fixed=0.0, per_token=1e-6))  # a machine for which another plan would be made
    cut = adapt(parent, text, tmp_path / "cut", minutes=0.5, resume=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert cut["new"]["loss after"] == whole["new"]["loss after"]
    with pytest.raises(RecipeError, match=r"batch: \d+ → 16"):
        adapt(parent, text, tmp_path / "cut", minutes=0.5, resume=True, settings={"batch": 16})


def test_an_edited_plan_is_refused_and_overwrite_makes_another(
    parent: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, StepTime(fixed=0.5, per_token=0.001))
    adapt(parent, text, tmp_path / "run", minutes=0.5)
    path = tmp_path / "run" / "plan.json"
    before = path.read_text()
    path.write_text(before.replace('"batch": ', '"batch": 1'))
    with pytest.raises(ArtefactError, match=r"plan\.json"):
        adapt(parent, text, tmp_path / "run", minutes=0.5, resume=True)
    adapt(parent, text, tmp_path / "run", minutes=0.5, overwrite=True)
    assert path.read_text() == before
    adapt(parent, text, tmp_path / "run", steps=1, overwrite=True, settings={"batch": 16})
    assert not path.exists()


def test_a_real_machine_is_measured_and_the_plan_is_said(
    parent: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lv.pretrain(start=parent, corpus=text, out=tmp_path / "run", device="cpu", steps=3)
    told = capsys.readouterr()
    said = " ".join((told.out + told.err).split())
    assert re.search(
        r"plan: 3 steps of [\d,]+ tokens \(\d+ of warm-up, rate [\d.e-]+\), [\d.]+ passes over the text", said
    )
    weights = load_bundle(parent).network.state_dict()
    assert any(
        not torch.equal(weights[name], t) for name, t in load_bundle(tmp_path / "run").network.state_dict().items()
    )
