"""Run by test_killed_recipes.py: pretrain recipes at their tiny size from raw text, unbroken and broken by signals.

    python -m tests.faults.killed_recipes FOLDER gpt t5

Each command runs as the shell would start it, in a fork of a process that has imported torch already. The broken run
is killed inside its 5th step, between backward and update (the newest checkpoint is of step 3), asked to stop in its
7th, killed again in its 8th, and continues to step 10; weights, moments of the optimizer and losses have to be those of
the unbroken one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from larvatus.interfaces.cli.commands import pretrain  # noqa: F401 - takes seconds, which no fork shall need
from larvatus.interfaces.cli.main import run
from larvatus.training.engine import step as engine_step
from tests.faults.begun import prose

SETTINGS = {
    "gpt": ("model.dropout=0.1", "model.attention_dropout=0.1", "tokenizer.size=60", "phases.0.length=32"),
    "elmo": (
        "model.dropout=0.1",
        "tokenizer.size=2000",
        "tokenizer.min_count=1",
        "phases.0.length=64",
        "objectives.forward-lm.samples=8",
        "objectives.backward-lm.samples=8",
    ),
    "xlnet": ("model.dropout=0.1", "tokenizer.size=44", "phases.0.length=32"),
    "t5": ("model.dropout=0.1", "tokenizer.size=140", "phases.0.length=32"),
}
"""Beside the tiny size: dropout and sampled words, whose draws must be the same after a resume, and little to read."""
STEPS = 10


def command(recipe: str, text: Path, out: Path) -> list[str]:
    words = ["pretrain", recipe, "--size", "tiny", "--corpus", text, "--out", out, "--steps", STEPS, "--save-every", 3]
    words += ["--evaluate-every", 100, "--device", "cpu", "--workers", 0, "--microbatch", 100, "--resume"]
    return [str(word) for word in words] + [
        word for setting in (*SETTINGS[recipe], "batch=8") for word in ("--set", setting)
    ]


def signal_in(count: int, number: signal.Signals) -> None:
    """Have this process get a signal inside the nth step that it makes: gradients are there, weights are as before."""
    real, seen = engine_step.Update._refuse_what_is_not_finite, [0]

    def refuse(self: Any, numbers: torch.Tensor) -> None:
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), number)
        real(self, numbers)

    engine_step.Update._refuse_what_is_not_finite = refuse  # type: ignore[method-assign]


def carried_out(words: list[str], log: Path, at: tuple[int, signal.Signals] | None = None) -> int:
    """The exit code of a command, in a fork; of one that a signal ended, minus its number."""
    child = os.fork()
    if child == 0:
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        if at is not None:
            signal_in(*at)
        try:
            run(words)
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 0)
        os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def differences(recipe: str, folder: Path) -> list[str]:
    """What a broken run ended with that the unbroken one did not."""
    whole, broken, log = folder / f"{recipe}-whole", folder / f"{recipe}-broken", folder / f"{recipe}.log"
    text = prose(folder / "text.txt", 300)
    words = command(recipe, text, broken)
    codes = [carried_out(command(recipe, text, whole), log)]
    codes += [carried_out(words, log, at) for at in ((5, signal.SIGKILL), (4, signal.SIGTERM), (1, signal.SIGKILL))]
    codes.append(carried_out(words, log))
    if codes != [0, -signal.SIGKILL, 75, -signal.SIGKILL, 0]:
        return [f"{recipe}: exit codes {codes}; {log.read_text()}"]
    last = f"checkpoints/step-{STEPS:08d}"
    different = []
    for name in ("model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors"):
        ours, theirs = load_file(whole / name), load_file(broken / name)
        different += [f"{recipe}: {name}: names of tensors"] * (ours.keys() != theirs.keys())
        different += [f"{recipe}: {name}: {key}" for key in ours if not torch.equal(ours[key], theirs[key])]
    if losses(whole) != losses(broken):
        different.append(f"{recipe}: losses {losses(whole)} and {losses(broken)}")
    return different


def losses(out: Path) -> dict[int, float]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked child has none of its parent's threads
    different = [line for recipe in sys.argv[2:] for line in differences(recipe, Path(sys.argv[1]))]
    print("\n".join(different))
    raise SystemExit(1 if different else 0)
