"""Faults of runs: kills, signals, broken checkpoints, edited recipes, two jobs in one place, a monitor that fails.

Each test names the row of the list of faults it holds.
"""

import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from larvatus.core.errors import ArtefactError, NumericsError, RecipeError
from larvatus.core.files import locked
from larvatus.training.engine import checkpoint
from larvatus.training.engine.reporter import MetricsLog
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining import checkpoint as checkpoints
from tests import warm
from tests.patience import WATCHDOG_S
from tests.shared import SMALL
from tests.training.pretraining.stopping import stop_after_saving


def final_weights(run):
    return load_file(run / "model.safetensors")


def metrics(run, kind):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def recording():
    return Console(record=True, file=io.StringIO(), width=400)


def assert_bit_equal(a, b):
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


def command(prepared, out, *, steps, workers=0, extra=()):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    return [
        *(sys.executable, "-m", "larvatus", "pretrain", "bert", *settings),
        *("--corpus", str(prepared.train), "--valid", str(prepared.valid), "--out", str(out)),
        *("--steps", str(steps), "--save-every", "2", "--workers", str(workers), *extra),
    ]


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


# — A. Checkpoints —


def test_row_11_stopping_and_resuming_is_bit_equal_to_going_on(run_small, tmp_path, monkeypatch):
    run_small("whole", steps=10, save_every=4)
    seen = stop_after_saving(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        run_small("cut", steps=10, save_every=4)
    run_small("cut", steps=10, save_every=4, resume=True)
    assert seen == [4, 8, 10]
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(tmp_path / "cut"))
    a, b = (
        load_file(next((tmp_path / n / "checkpoints").glob("step-*10")) / "optimizer.safetensors")
        for n in ("whole", "cut")
    )
    assert_bit_equal(a, b)


@pytest.mark.proof
def test_row_11_six_random_kills_with_changing_workers_end_bit_equal(prepared, tmp_path):
    steps = 100
    assert warm.run(command(prepared, tmp_path / "whole", steps=steps), env=environment()).returncode == 0
    draw, kills, workers = random.Random(4), 0, itertools.cycle([2, 0, 1])
    out = tmp_path / "killed"
    while kills < 6:
        begun = (out / "metrics.jsonl").stat().st_size if (out / "metrics.jsonl").exists() else 0
        process = warm.Popen(
            command(prepared, out, steps=steps, workers=next(workers), extra=["--resume"]),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not (
            (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > begun
        ):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.25))
        process.kill()
        assert process.wait() == -signal.SIGKILL  # killed, not done: there are steps enough for six kills
        kills += 1
    finished = warm.run(command(prepared, out, steps=steps, workers=1, extra=["--resume"]), env=environment())
    assert finished.returncode == 0
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(out))


@pytest.mark.proof
def test_row_12_another_world_size_sees_the_same_batches(prepared, tmp_path):
    """Two ranks divide the same steps: the same losses, up to the order of summation."""
    losses = {}
    for ranks in (1, 2):
        out = tmp_path / str(ranks)
        run = command(prepared, out, steps=3, extra=["--set", "model.dropout=0.0", "--microbatch", "128"])
        if ranks == 2:
            run[:3] = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                "-m",
                "larvatus",
            ]
        assert warm.run(run, env=environment(**{warm.NESTED: "all"}), capture_output=True).returncode == 0
        losses[ranks] = [line["loss"] for line in metrics(out, "train")]
    assert losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_row_13_resuming_with_an_edited_recipe_is_refused_by_field(run_small, tmp_path):
    run_small("run", steps=2)
    with pytest.raises(RecipeError, match=r"optimizer\.rate: 0\.003 → 0\.1; steps: 2 → 4; .*--fork"):
        run_small("run", steps=4, resume=True, settings=["optimizer.rate=0.1"])
    run_small("run", steps=4, resume=True, fork=True, settings=["optimizer.rate=0.1"])
    assert (tmp_path / "run" / "checkpoints" / "step-00000004").is_dir()


def test_row_14_a_broken_newest_checkpoint_falls_back_aloud(run_small, tmp_path):
    run_small("whole", steps=6, save_every=2)
    for damage in ("flip", "truncate", "state", "missing"):
        run = shutil.copytree(tmp_path / "whole", tmp_path / damage)
        break_checkpoint(run / "checkpoints" / "step-00000006", damage)
        console = recording()
        run_small(damage, steps=6, save_every=2, resume=True, console=console)
        said = console.export_text()
        assert "step-00000006" in said
        assert "falling back" in said
        assert "resumed from step 4 of 6" in said
        assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(run))


def break_checkpoint(path, damage):
    weights = path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    if damage == "flip":
        data[-1] ^= 1
        weights.write_bytes(data)
    elif damage == "truncate":
        weights.write_bytes(data[:-1])
    elif damage == "state":
        (path / "state.json").write_text("{")
    else:
        (path / "optimizer.safetensors").unlink()


def test_row_14_no_sound_checkpoint_at_all_is_an_error(run_small, tmp_path):
    run_small("run", steps=2)
    for state in (tmp_path / "run" / "checkpoints").glob("*/state.json"):
        state.write_text("{}")
    with pytest.raises(ArtefactError, match="none of 2 checkpoints is sound"):
        run_small("run", steps=2, resume=True)


def test_row_15_a_second_job_in_the_same_directory_is_refused(run_small, tmp_path):
    with locked(tmp_path / "run"), pytest.raises(ArtefactError, match=rf"another run \(pid {os.getpid()}\)"):
        run_small("run")


def test_a_finished_run_is_not_overwritten(run_small, tmp_path):
    run_small("run", steps=2)
    before = final_weights(tmp_path / "run")
    with pytest.raises(ArtefactError, match="already holds a run"):
        run_small("run", steps=3)
    assert_bit_equal(before, final_weights(tmp_path / "run"))


def test_row_4_an_out_that_cannot_be_written_is_refused_before_step_0(run_small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((ArtefactError, NotADirectoryError)) as caught:
        run_small("file/run")
    assert isinstance(caught.value, ArtefactError)


def test_row_3_a_full_disk_in_mid_save_keeps_the_old_checkpoint(run_small, tmp_path, monkeypatch):
    real = checkpoint.write_tensors

    def full(path, tensors, metadata=None):
        if "step-00000004" in str(path) and path.name == "optimizer.safetensors":
            raise OSError(28, "No space left on device", str(path))
        real(path, tensors, metadata)

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(ArtefactError, match=r"no space left to write .*step-00000004 \([\d,]+ bytes needed\)"):
        run_small("run", steps=4, save_every=2)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]
    monkeypatch.undo()
    run_small("run", steps=4, save_every=2, resume=True)


# — C. Numerics over ranks —


RANKS = """
import sys, torch, torch.distributed as dist
sys.path.insert(0, {tests!r})
from tests.training.engine.test_step import batch_of, weights
from larvatus.core.errors import NumericsError
from larvatus.models.network import Network
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.ranks import ranks
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.step import Stepper
from tests.shared import SMALL
from tests.patience import WATCHDOG_S

def stopped(group, where):
    recipe = read_recipe("bert", settings=SMALL)
    model = Network.build(recipe.model, recipe.objectives, 50, seed=0)
    runtime = Runtime(microbatch=16)
    stepper = Stepper(model, adamw(model, recipe.optimizer), recipe, runtime=runtime, ranks=group, seed=1, pad_id=0)
    stepper(batch_of([12, 12, 12, 12]), step=0, rate=1e-3, limit=48)
    before = weights(stepper)
    if group.rank == 1:
        if where == "loss":
            def broken(*args, **kwargs):
                found = model(*args, **kwargs)
                return {{n: type(loss)(total=loss.total * float("nan"), count=loss.count) for n, loss in found.items()}}

            stepper._losses = broken
        else:
            model.encoder.embeddings.words.weight.register_hook(lambda grad: grad * float("nan"))
    try:
        stepper(batch_of([12, 12, 12, 12]), step=1, rate=1e-3, limit=48).check()
    except NumericsError:
        same = all(torch.equal(t, weights(stepper)[n]) for n, t in before.items())
        return "stopped, weights kept" if same else "stopped, weights CHANGED"
    return "not stopped"

with ranks("cpu", timeout_s=60) as group:
    for where in ("loss", "gradient"):
        with open(f"{tmp}/{{where}}-{{group.rank}}", "w") as file:
            file.write(stopped(group, where))
"""


@pytest.mark.proof  # `test_rank_faults.py` tries the same through the command
def test_rows_27_and_28_nan_on_one_of_two_ranks_stops_both_before_the_update(tmp_path):
    """In the loss, and in a gradient: one start of two processes for both."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS.format(tests=str(Path(__file__).parents[2]), tmp=tmp_path))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = warm.run(launch, env=environment(**{warm.NESTED: "all"}), capture_output=True, text=True, timeout=WATCHDOG_S)
    said = {path.name: path.read_text() for path in tmp_path.glob("*-[01]")}
    names = ["loss-0", "loss-1", "gradient-0", "gradient-1"]
    assert said == dict.fromkeys(names, "stopped, weights kept"), done.stderr


def test_nan_in_a_run_exits_6_and_keeps_the_last_checkpoint(run_small, tmp_path, monkeypatch):
    """As a rate of 1e30 would make them, were it not refused: weights beyond all numbers after the second step."""
    real = torch.optim.AdamW.step

    def step(self, closure=None):
        real(self, closure)
        if self.state[self.param_groups[0]["params"][0]]["step"] == 2:
            with torch.no_grad():
                self.param_groups[0]["params"][0].mul_(1e38)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(NumericsError, match="the weights were not touched"):
        run_small("run", steps=50, save_every=1)
    newest = checkpoints.newest_checkpoint(tmp_path / "run", lambda line: pytest.fail(line))
    assert newest is not None
    assert newest.state.progress.step >= 1


# — D. Processes —


def test_row_38_a_monitor_that_fails_does_not_stop_training(run_small, tmp_path, monkeypatch):
    def broken(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsLog, "_append", broken)
    console = recording()
    run_small("run", steps=3, console=console)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert console.export_text().count("metrics are no longer written") == 1


def test_runtimes_do_not_change_the_result(run_small, tmp_path):
    """Workers and microbatch are the runtime's: the losses are the recipe's."""
    off = ["model.dropout=0.0", "model.attention_dropout=0.0"]
    for name, runtime in {"a": Runtime(), "b": Runtime(workers=2, microbatch=100)}.items():
        run_small(name, steps=5, settings=off, runtime=runtime)
    losses = {name: [line["loss"] for line in metrics(tmp_path / name, "train")] for name in "ab"}
    assert losses["a"] == pytest.approx(losses["b"], rel=1e-4)
