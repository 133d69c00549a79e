"""A fine-tuning that was stopped or killed continues to the same bits; what is not the same run is refused by name."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from larvatus.tasks.trainer import progress as finetuning
from larvatus.tasks.trainer.checkpoint import Epoch, SeedRun
from larvatus.tasks.trainer.finetune import _is_better
from larvatus.tasks.validation import Scores
from tests import made_up as made
from tests import warm
from tests.made_up import QUICK, Call

RUNS: dict[str, tuple[str, tuple[object, ...], int]] = {
    "classes": ("classify", (), 2),
    "at the end of an epoch, with a part of its loss read": ("classify", ("--evaluations", 3), 3),
    "in the second of three seeds": ("classify", ("--seeds", 3), 6),
    "between two seeds": ("classify", ("--seeds", 2), 4),
    "LoRA": ("tag", ("--trained", "lora", "--crf"), 2),
    "features": ("tag", ("--trained", "head", "--lstm", 8, "--seeds", 2), 6),
    "patience": ("classify", ("--patience", 2, "--epochs", 8), 2),
    "nothing held out": ("classify", ("--no-dev",), 1),
    "two tasks on one encoder": ("tag", ("--with", "spans", "--seeds", 2), 6),
}


def result(out: Path) -> tuple[dict[str, torch.Tensor], Any]:
    """Weights and scores; without times, which differ."""
    history = json.loads((out / "finetuning.json").read_text())

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: timeless(one) for name, one in value.items() if name != "seconds"}
        return [timeless(one) for one in value] if isinstance(value, list) else value

    weights = {path.name: load_file(path) for path in out.glob("*.safetensors")}
    return {f"{file}/{name}": t for file, own in weights.items() for name, t in own.items()}, timeless(history)


def assert_bit_equal(one: Path, other: Path) -> None:
    (a, history), (b, again) = result(one), result(other)
    assert history == again
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


def signal_at(monkeypatch: pytest.MonkeyPatch, number: int, told: str = "_epoch") -> None:
    """SIGTERM to this process when the nth evaluation of the run is told, or the nth point of its curve."""
    counter, plain = itertools.count(1), getattr(finetuning.FineTuneProgress, told)

    def tell(self: Any, *what: Any) -> None:
        plain(self, *what)
        if next(counter) == number:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(finetuning.FineTuneProgress, told, tell)


def check_resumed(finetune: Call, *command: object, at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped at its nth evaluation and resumed ends with the bits of one that was not stopped."""
    assert finetune(*command, "--out", folder / "whole")[0] == 0
    with monkeypatch.context() as patched:
        signal_at(patched, at)
        assert finetune(*command, "--out", folder / "parts")[0] == 75
    assert finetune(*command, "--out", folder / "parts", "--resume")[0] == 0
    assert_bit_equal(folder / "whole", folder / "parts")


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], Path]:
    def make(task: str) -> Path:
        return (
            made.classes(tmp_path / "train.jsonl", 24)
            if task == "classify"
            else made.tags(tmp_path / "train.conll", 24)
        )

    return make


@pytest.mark.parametrize("what", RUNS)
def test_a_run_that_was_asked_to_stop_goes_on_to_the_same_bits(
    finetune: Call, files: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    task, more, at = RUNS[what]
    command = (task, "--train", files(task), *QUICK, *more)
    assert finetune(*command, "--out", tmp_path / "whole")[0] == 0
    with monkeypatch.context() as patched:
        signal_at(patched, at)
        code, _, err = finetune(*command, "--out", tmp_path / "parts")
    assert code == 75
    assert "SIGTERM stopped it at step" in err
    assert "--resume continues" in err
    assert len(list((tmp_path / "parts" / "checkpoints").iterdir())) == 1
    assert not (tmp_path / "parts" / "config.json").exists()
    code, _, err = finetune(*command, "--out", tmp_path / "parts")
    assert (code, "continue with --resume" in err) == (5, True)
    assert finetune(*command, "--out", tmp_path / "parts", "--resume")[0] == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")
    assert not (tmp_path / "parts" / "checkpoints").exists()


KILLED = """
import os, signal, sys
from larvatus.tasks.trainer import progress as finetuning
from larvatus.interfaces.cli.main import run
from larvatus.tasks.trainer import checkpoint
from larvatus.tasks.trainer import trainer
checkpoint.EVERY_S, trainer.READ_EVERY = 0.0, 4
def progress(self, step, steps, loss, speed):
    if step == 18:
        os.kill(os.getpid(), signal.SIGKILL)
finetuning.FineTuneProgress._progress = progress
run(sys.argv[1:])
"""


@pytest.mark.proof
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, tiny_directory: Path) -> None:
    train = made.classes(tmp_path / "train.jsonl", 80)
    command = ("--train", train, *QUICK, "--evaluations", 1, "--epochs", 3)

    def run(*start: str, out: str, more: Sequence[str] = ()) -> subprocess.CompletedProcess[bytes]:
        """In a process of its own: how many threads add up, which other tests may set, changes the last bits."""
        words = ["finetune", "classify", "--model", tiny_directory, *command, "--out", tmp_path / out, *more]
        return warm.run([sys.executable, *start, *map(str, words)], capture_output=True, check=False)

    killed = run("-c", KILLED, out="parts")
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    saved = sorted(path.name for path in (tmp_path / "parts" / "checkpoints").iterdir())
    # between two evaluations, after steps 9 and 18; and one to fall back to
    assert saved == ["seed-0-step-00000012", "seed-0-step-00000016"]
    assert run("-m", "larvatus", out="whole").returncode == 0
    assert run("-m", "larvatus", out="parts", more=["--resume"]).returncode == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")


@pytest.fixture
def stopped(finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The command of a run that was stopped in the middle."""
    command = ("--train", made.classes(tmp_path / "train.jsonl"), "--out", tmp_path / "out", *QUICK)
    with monkeypatch.context() as patched:
        signal_at(patched, 2)
        assert finetune("classify", *command)[0] == 75
    return command


def test_a_checkpoint_with_a_flipped_byte_is_refused_by_name(
    finetune: Call, stopped: tuple[object, ...], tmp_path: Path
) -> None:
    (saved,) = (tmp_path / "out" / "checkpoints").iterdir()
    for name in ("trained.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"):
        held = (saved / name).read_bytes()
        flipped = bytearray(held)
        flipped[len(held) // 2 if name != "state.json" else 0] ^= 1
        (saved / name).write_bytes(flipped)
        code, _, err = finetune("classify", *stopped, "--resume")
        assert (code, str(saved / name) in err) == (5, True), err
        (saved / name).write_bytes(held)


def test_a_run_does_not_go_on_with_other_settings(finetune: Call, stopped: tuple[object, ...]) -> None:
    for more, says in (
        (("--rate", 0.02), "settings.rate 0.01 (now 0.02)"),
        (("--trained", "lora"), 'settings.trained.what "all" (now "lora")'),
        (("--seeds", 2), "seeds [0] (now [0, 1])"),
        (("--pool", "mean"), 'options.pool null (now "mean")'),
        (("--no-dev",), "hold_out true (now false)"),
    ):
        code, _, err = finetune("classify", *stopped, *more, "--resume")
        assert code == 5
        assert says in err
        assert "give the same, or choose another --out" in err


def test_a_run_does_not_go_on_with_other_examples(finetune: Call, stopped: tuple[object, ...], tmp_path: Path) -> None:
    made.classes(tmp_path / "train.jsonl", seed=9)
    code, _, err = finetune("classify", *stopped, "--resume")
    assert code == 5
    assert "was begun with other contents of train;" in err


def test_a_score_that_is_not_defined_does_not_keep_a_run_from_going_on(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("larvatus.tasks.classify.task.class_metrics", lambda *_: {"spearman": float("nan")})
    command = ("--train", made.numbers(tmp_path / "train.jsonl"), "--out", tmp_path / "out", *QUICK)
    with monkeypatch.context() as patched:
        signal_at(patched, 2)
        assert finetune("classify", *command)[0] == 75
    assert finetune("classify", *command, "--resume")[0] == 0
    assert "| spearman | nan |" in (tmp_path / "out" / "README.md").read_text()


def test_the_parts_of_a_curve_that_are_done_are_not_trained_again(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("--train", made.classes(tmp_path / "train.jsonl", 60), *QUICK, "--curve", "30,60")
    assert finetune("classify", *command, "--out", tmp_path / "whole")[0] == 0
    with monkeypatch.context() as patched:
        signal_at(patched, 1, "point")
        code, _, err = finetune("classify", *command, "--out", tmp_path / "parts")
    assert (code, "the same command with --resume continues from what was saved" in err) == (75, True), err
    code, _, err = finetune("classify", *command[:-1], "30", "--out", tmp_path / "parts", "--resume")
    assert (code, "curve [0.3, 0.6] (now [0.3])" in err) == (5, True)
    held = (tmp_path / "parts" / "checkpoints" / "curve.json").read_text()
    (tmp_path / "parts" / "checkpoints" / "curve.json").write_text("[]")
    code, _, err = finetune("classify", *command, "--out", tmp_path / "parts", "--resume")
    assert (code, "curve.json has no checksum" in err) == (5, True)
    (tmp_path / "parts" / "checkpoints" / "curve.json").write_text(held)
    code, said, _ = finetune("classify", *command, "--out", tmp_path / "parts", "--resume")
    assert code == 0
    assert said.count("curve: ") == 2  # the second share and the whole
    one, other = (json.loads((tmp_path / name / "curve.json").read_text()) for name in ("whole", "parts"))
    assert one == other
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")


def test_a_seed_without_a_defined_score_is_never_the_best() -> None:
    def seed(score: float | None) -> SeedRun:
        scores = Scores(metric="m", values={"m": score}) if score is not None else None
        epoch = Epoch(step=1, epoch=1.0, training_loss=0.0, scores=scores)
        return SeedRun(seed=0, steps=1, seconds=0.0, history=(), best=epoch)

    nan = float("nan")
    assert _is_better(seed(0.1), seed(nan))
    assert not _is_better(seed(nan), seed(0.1))
    assert not _is_better(seed(nan), seed(nan))
    assert not _is_better(seed(0.1), seed(0.1))
    assert not _is_better(seed(None), seed(None))
