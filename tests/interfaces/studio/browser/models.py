"""The models of the studio under test: two that fill blanks, and one for each kind of label, a few words each.

Weights of what fills, classifies and tags are random; spans and answers are learnt, for random ones would be none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larvatus.interfaces.cli.main import run
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from tests import made_up as made

HOSTILE = "<img src=x onerror=alert(1)>"
LABELS = (HOSTILE, "wet", "dry")
HEADS = {
    "classes": ClassificationConfig(labels=LABELS),
    "tags": TaggingConfig(labels=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), scheme="BIO"),
}
CHOICES = [
    {"context": "the river", "endings": ["was wide", "please run"], "label": 0},
    {"context": "the bank", "endings": ["turn in", "was deep"], "label": 1},
]
LEARN = ("--batch", 8, "--rate", 0.01, "--device", "cpu", "--quiet")


def make_models(folder: Path, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path]) -> list[Path]:
    """Their directories, in the order in which they are served; the first fills blanks."""
    plain = {name: save_tiny(folder / name, tiny_model(seed=seed)) for seed, name in enumerate(("rivers", "banks"))}
    headed = {
        name: save_tiny(folder / name, tiny_model(seed=5, objectives=(head,)), (head,)) for name, head in HEADS.items()
    }
    spans = ("--train", made.nested(folder / "spans.conll", 80), "--no-dev", "--word", 2, "--tag", "3,4")
    asked = ("--train", made.asked(folder / "asked.json", 80), "--no-dev", "--set", "longest=2")
    finetune("spans", plain["rivers"], folder / "spans", *spans, "--epochs", 12)
    finetune("answer", plain["rivers"], folder / "answers", *asked, "--epochs", 10)
    choices = folder / "choices.jsonl"
    choices.write_text("".join(json.dumps(row) + "\n" for row in CHOICES * 10), encoding="utf-8")
    finetune("choose", plain["rivers"], folder / "choices", "--train", choices, "--no-dev", "--epochs", 6)
    text = folder / "text.txt"
    text.write_text("".join(f"{' '.join(words)} .\n" for words in made.sentences(40)), encoding="utf-8")
    command("isotropy", "fit", "--model", plain["rivers"], "--corpus", text, "--name", "z", "--device", "cpu")
    return [*plain.values(), *headed.values(), *(folder / name for name in ("spans", "answers", "choices"))]


def finetune(task: str, model: Path, out: Path, *words: object) -> None:
    command("finetune", task, "--model", model, "--out", out, *words, *LEARN)


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    assert not ended.value.code


def add_steps(run: Path, first: int, last: int) -> None:
    """Steps of a training run, as its folder holds them."""
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for step in range(first, last):
            record = {
                "kind": "train",
                "step": step,
                "time": 10.0 + step,
                "loss": 5 / (1 + step),
                "tokens/s": 1000 + step,
            }
            file.write(json.dumps({**record, "rate": 1e-3 / (1 + step)}) + "\n")
