"""Rows 11, 12, 14, 16, 33 and 34 as a user meets them: processes that are signalled, killed and started again.

Nothing is saved now and then here (--save-every, two minutes of fine-tuning): what stands was saved for the signal.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from larvatus.training.engine import checkpoint
from larvatus.training.pretraining.checkpoint import newest_checkpoint
from tests import made_up as labelled
from tests import warm
from tests.faults.test_runs import assert_bit_equal, environment, final_weights, recording
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


def network(prepared: Any, out: Path, *more: Any, recipe: str = "bert", steps: int = 4000) -> list[str]:
    settings = SETTINGS if recipe == "bert" else SETTINGS[: SETTINGS.index("phases.1.length=48") - 1] + SETTINGS[-2:]
    words = [sys.executable, "-m", "larvatus", "pretrain", recipe, *settings, "--corpus", prepared.train]
    words += ["--valid", prepared.valid, "--out", out, "--steps", steps, "--save-every", 100_000]
    return [str(word) for word in (*words, "--evaluate-every", 100_000, "--device", "cpu", *more)]


def finetuning(base: Path, train: Path, out: Path, *more: Any) -> list[str]:
    words = [sys.executable, "-m", "larvatus", "finetune", "classify", "--model", base, "--train", train, "--out", out]
    return [str(word) for word in (*words, *labelled.QUICK, "--epochs", 400, "--patience", 0, *more)]


def stopped(command: list[str], number: signal.Signals, begun: Path) -> str:
    """Start it, give it a signal once it has made some steps, and see it end with 75; what it said."""
    process = warm.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (begun.exists() and begun.stat().st_size):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 75, said
    return said


@pytest.mark.parametrize("number", [signal.SIGUSR1, pytest.param(signal.SIGTERM, marks=pytest.mark.proof)])
def test_33_pretraining_saves_the_step_it_stopped_at_for_the_signal_alone(
    prepared: Any, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    said = stopped(network(prepared, out), number, out / "metrics.jsonl")
    (step,) = re.findall(rf"{number.name} stopped it; saved at step ([\d,]+) of 4,000", said)
    saved = newest_checkpoint(out, pytest.fail)
    assert saved is not None
    assert saved.state.progress.step == int(step.replace(",", "")) > 0
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{saved.state.progress.step:08d}"]


def test_33_fine_tuning_saves_the_step_it_stopped_at_for_the_signal_alone(
    save_tiny: Any, tiny_model: Any, tmp_path: Path
) -> None:
    base, out = save_tiny(tmp_path / "base", tiny_model()), tmp_path / "run"
    train = labelled.classes(tmp_path / "train.jsonl", 60)
    said = stopped(finetuning(base, train, out), signal.SIGTERM, out / "metrics.jsonl")
    (step,) = re.findall(r"SIGTERM stopped it at step ([\d,]+) of", said)
    (saved,) = (out / "checkpoints").iterdir()
    assert checkpoint.read_snapshot(saved).state["step"] == int(step.replace(",", "")) > 0


@pytest.mark.proof
@pytest.mark.parametrize("recipe", ["bert", "spanbert"])
def test_11_stopped_and_resumed_as_processes_ends_bit_equal(prepared: Any, tmp_path: Path, recipe: str) -> None:
    """N + M steps at once, and N, a signal, M: weights, moments and losses, for several objectives."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    common: dict[str, Any] = {"recipe": recipe, "steps": 150}
    assert warm.run(network(prepared, whole, **common), env=environment()).returncode == 0
    stopped(network(prepared, parts, "--resume", **common), signal.SIGTERM, parts / "metrics.jsonl")
    again = network(prepared, parts, "--resume", "--workers", 2, **common)
    assert warm.run(again, env=environment()).returncode == 0
    assert_bit_equal(final_weights(whole), final_weights(parts))
    for name in ("model", "optimizer"):
        ours, theirs = (
            load_file(out / "checkpoints" / "step-00000150" / f"{name}.safetensors") for out in (whole, parts)
        )
        assert_bit_equal(ours, theirs)
    ours, theirs = ({line["step"]: line["loss"] for line in train_lines(out)} for out in (whole, parts))
    assert ours == theirs


def train_lines(out: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "train"]


@pytest.mark.proof
def test_11_killed_at_any_moment_and_always_resumed_ends_bit_equal(tmp_path: Path) -> None:
    """From raw text, --resume from the first call on: vocabulary, shards, checkpoints, the model itself."""
    from tests.faults.begun import prose

    text = prose(tmp_path / "text.txt", 3000)
    settings = [word for one in (*SMALL, "tokenizer.size=50") for word in ("--set", one)]

    def command(out: Path) -> list[str]:
        words = [sys.executable, "-m", "larvatus", "pretrain", "bert", *settings, "--corpus", text, "--out", out]
        return [str(word) for word in (*words, "--steps", 60, "--save-every", 5, "--device", "cpu", "--resume")]

    began = time.monotonic()
    assert warm.run(command(tmp_path / "whole"), env=environment(), capture_output=True).returncode == 0
    took = time.monotonic() - began
    draw = random.Random(7)
    for kill in range(11):
        process = warm.Popen(
            command(tmp_path / "killed"), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            _, said = process.communicate(timeout=draw.uniform(0.3, 1.0) * took if kill < 10 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        assert process.returncode == 0, said
        break
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(tmp_path / "killed"))


def test_12_any_number_of_workers_gives_the_same_order_and_masks_to_the_bit(prepared: Any, small_recipe: Any) -> None:
    """Also after a resume in the middle: what the loader gives from a cursor on is what it would have given."""
    from larvatus.data.corpus import Corpus
    from larvatus.data.corpus.loader import Cursor, Loader, LoaderOptions
    from larvatus.training.pretraining.evaluation import build_corruption

    corpus = Corpus.open(prepared.train)
    for settings, tried in (((), ((2, 5),)), (("mixture.alpha=0.5",), ((1, 0),))):
        recipe = small_recipe(*settings)

        def steps(workers: int, cursor: Cursor, count: int, recipe: Any = recipe) -> list[Any]:
            corruption = build_corruption(recipe.corruption, corpus.tokenizer, 3, limit=32)
            loader = Loader(
                corpus,
                packing=recipe.packing,
                length=32,
                corruption=corruption,
                tokens=512,
                seed=3,
                workers=workers,
                reading=LoaderOptions(mixture=recipe.mixture),
            )
            found = loader.steps(cursor)
            return [next(found) for _ in range(count)]

        plain = steps(0, Cursor(), 12)
        for workers, first in tried:
            cursor = plain[first - 1][1] if first else Cursor()
            for (ours, at), (theirs, there) in zip(plain[first:], steps(workers, cursor, 12 - first), strict=True):
                assert at == there
                assert (ours.tokens.ids == theirs.tokens.ids).all()
                for kind, target in ours.targets.items():
                    for name, value in vars(target).items():
                        assert (value == getattr(theirs.targets[kind], name)).all(), (kind, name)


DAMAGES = {
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "first byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "zeros": lambda data: bytes(len(data)),
}


def test_14_each_damage_of_each_file_of_the_newest_checkpoint_falls_back_aloud(run_small: Any, tmp_path: Path) -> None:
    run_small("run", steps=4, save_every=2)
    newest = tmp_path / "run" / "checkpoints" / "step-00000004"
    files = sorted(newest.iterdir())
    assert [path.name for path in files] == ["model.safetensors", "optimizer.safetensors", "state.json"]
    for path in files:
        held = path.read_bytes()
        for what in (*DAMAGES, "missing", "a link", "a folder"):
            path.unlink()
            if what in DAMAGES:
                path.write_bytes(DAMAGES[what](held))
            elif what == "a link":
                path.symlink_to(tmp_path / "run" / "checkpoints" / "step-00000002" / path.name)
            elif what == "a folder":
                path.mkdir()
            said: list[str] = []
            found = newest_checkpoint(tmp_path / "run", said.append)
            assert found is not None, what
            assert found.state.progress.step == 2, what
            assert len(said) == 1, what
            assert str(path) in said[0], what
            assert "falling back to the one before" in said[0]
            path.rmdir() if what == "a folder" else path.unlink(missing_ok=True)
            path.write_bytes(held)
    assert newest_checkpoint(tmp_path / "run", pytest.fail).state.progress.step == 4  # type: ignore[union-attr]


def test_14_fine_tuning_falls_back_aloud_and_ends_bit_equal(call: Any, begin: Any, tmp_path: Path) -> None:
    begun = begin("finetune")
    newest = sorted((begun.kept / "checkpoints").glob("seed-*"))[-1]
    assert newest.name == "seed-1-step-00000002"
    state = newest / "state.json"
    held = state.read_text()
    state.write_text(held.replace('"step": 2,', '"step": 3,', 1))
    assert state.read_text() != held
    code, said, _ = call(*begun.again)
    assert code == 0
    assert f"{state} does not match its checksum" in said
    assert "falling back to the one before" in said
    whole = [tmp_path / "whole" if word == begun.kept else word for word in begun.command]
    assert call(*whole)[0] == 0
    assert_bit_equal(load_file(begun.kept / "model.safetensors"), load_file(tmp_path / "whole" / "model.safetensors"))


def test_14_a_checkpoint_of_another_format_is_refused_with_both_numbers(call: Any, begin: Any) -> None:
    """That of 0.1 had no number: it counts as 1."""
    begun = begin("pretrain")
    for state in begun.kept.glob("checkpoints/*/state.json"):
        found = json.loads(state.read_text())
        state.write_text(json.dumps({**found["state"], "files": found["files"]}))
    code, _, complaint = call(*begun.again)
    assert code == 5
    assert "state.json has format 1, this version reads 2; end the run with the version of Larvatus that" in complaint


def test_a_resume_says_what_may_change_the_last_bits(run_small: Any, tmp_path: Path) -> None:
    run_small("run", steps=4, save_every=2)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000004")
    console = recording()
    torch.set_num_threads(2)
    try:
        run_small("run", steps=3, save_every=2, resume=True, fork=True, console=console)
    finally:
        torch.set_num_threads(1)
    said = console.export_text()
    assert "the checkpoint was made with threads 1 (now 2): the result may differ" in said
    made = newest_checkpoint(tmp_path / "run", pytest.fail).made  # type: ignore[union-attr]
    assert (made.threads, made.torch) == (2, torch.__version__)
    assert made.larvatus


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
def test_16_an_old_checkpoint_that_really_cannot_be_deleted_is_said_and_harmless(
    run_small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is read-only for who saves. The saves after it work, and only it stays besides the newest two."""
    from larvatus.training.pretraining import run as pretrain

    plain = pretrain.save_checkpoint

    def as_nobody(*arguments: Any, **options: Any) -> Path:
        os.seteuid(65534)
        try:
            return plain(*arguments, **options)
        finally:
            os.seteuid(0)

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        out = Path(name) / "run"
        run_small(out, steps=3, save_every=1)
        shutil.rmtree(out / "checkpoints" / "step-00000003")
        for path in (out, *out.rglob("*")):
            os.chown(path, 65534, 65534)
        (out / "checkpoints" / "step-00000002").chmod(0o555)
        monkeypatch.setattr(pretrain, "save_checkpoint", as_nobody)
        console = recording()
        run_small(out, steps=8, save_every=1, resume=True, fork=True, console=console)
        said = console.export_text()
        assert "step-00000002 is no longer needed, but cannot be deleted; training continues" in said
        left = sorted(path.name for path in (out / "checkpoints").iterdir())
        assert left == ["step-00000002", "step-00000007", "step-00000008"]


SECOND = """
import os, signal, sys, threading
from larvatus.interfaces.cli.main import run
from larvatus.training.engine import checkpoint
moment, seen = int(sys.argv.pop(1)), [0]
def counted(real):
    def operation(*arguments, **options):
        seen[0] += 1
        if seen[0] >= moment:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **options)
    return operation
plain = checkpoint.write_snapshot
def write(*arguments, **options):
    for name in ("fsync", "replace", "rename", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    return plain(*arguments, **options)
from larvatus.training.engine import checkpoint
checkpoint.write_snapshot = write
run(sys.argv[1:])
"""


@pytest.mark.parametrize("moment", [1, *(pytest.param(number, marks=pytest.mark.proof) for number in (3, 6, 9))])
def test_34_more_signals_in_the_midst_of_the_save_leave_a_sound_checkpoint(
    prepared: Any, tmp_path: Path, moment: int
) -> None:
    """From the nth step that makes something durable on, SIGTERM comes at each: the save is finished all the same."""
    out = tmp_path / "run"
    words = network(prepared, out, steps=40)[3:]
    words[words.index("--save-every") + 1] = "3"
    done = warm.run(
        [sys.executable, "-c", SECOND, str(moment), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert done.returncode == 75, done.stderr
    saved = newest_checkpoint(out, pytest.fail)
    assert saved is not None
    assert saved.state.progress.step in (3, 4)
    assert not list((out / "checkpoints").glob(".*"))
