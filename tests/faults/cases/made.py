"""What several cases need beside a model, made once in the folder they share; and commands that take one path."""

from __future__ import annotations

import functools
import operator
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from larvatus.interfaces.cli.main import run
from tests.faults.cases import Case, Place
from tests.inference.senses.conftest import SEMCOR, write_wordnet

CASES: list[Case] = []
SMALL = ("model.layers=1", "model.hidden=16", "model.heads=2", "batch=16", "phases.0.length=16", "tokenizer.size=48")
PRETRAIN = [
    "pretrain",
    "bert",
    "--device",
    "cpu",
    "--steps",
    1,
    "--out",
    "run",
    *functools.reduce(operator.iadd, (["--set", s] for s in SMALL), []),
]


def made(place: Place, name: str, command: Callable[[Path], list[object]]) -> Path:
    """The output of a command that works, made by the first case that asks for it."""
    path = place.model.parent / name
    if not path.exists():
        with pytest.raises(SystemExit) as ended:
            run([str(word) for word in command(path)])
        assert not ended.value.code
    return path


def own(place: Place, path: Path) -> Path:
    """A copy that a case may spoil."""
    copy = place.here / path.name
    shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    return copy


def index(place: Place) -> Path:
    return made(
        place,
        "index",
        lambda out: ["similar", "index", place.text, "--word", "bank", "--out", out, "--model", place.model],
    )


def vectors(place: Place, suffix: str) -> Path:
    return made(
        place,
        f"vectors{suffix}",
        lambda out: ["embed", place.text, "--unit", "word", "--out", out, "--model", place.model],
    )


def standardiser(place: Place) -> Path:
    return made(
        place,
        "z.safetensors",
        lambda out: ["isotropy", "fit", "--corpus", place.text, "--out", out, "--model", place.model],
    )


def vocabulary(place: Place) -> Path:
    return made(place, "vocabulary", lambda out: ["tokenizer", "train", place.text, "--size", 48, "--out", out])


def wordnet(place: Place) -> Path:
    path = place.model.parent / "wordnet"
    return path if path.exists() else write_wordnet(path)


def senses(place: Place) -> Path:
    text = place.model.parent / "semcor"
    text.mkdir(exist_ok=True)
    (text / "br-a01").write_text(SEMCOR)
    return made(
        place,
        "senses",
        lambda out: ["senses", "build", text, "--wordnet", wordnet(place), "--out", out, "--model", place.model],
    )
