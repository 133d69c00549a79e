"""Labelled files of a few words, and the command that fine-tunes a tiny model on them; a pytest plugin, as tiny.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from larvatus.cli.main import run
from larvatus.rng import stream

WORDS = ["the", "a", "river", "bank", "of", "was", "wide", "deep", "and", "turn", "your", "homework", "in", "please"]
QUICK = ("--epochs", 2, "--batch", 8, "--rate", 0.01, "--device", "cpu")
Call = Callable[..., tuple[int, str, str]]


def sentences(count: int, seed: int = 0) -> list[list[str]]:
    random = stream(seed, "test sentences")
    return [random.choice(WORDS, size=random.integers(2, 9)).tolist() for _ in range(count)]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def classes(path: Path, count: int = 40, seed: int = 0, **more: Any) -> Path:
    """`wet` where there is a river or a bank."""
    rows = ({"text": " ".join(w), "label": "wet" if {"river", "bank"} & {*w} else "dry", **more}
            for w in sentences(count, seed))  # fmt: skip
    return write_rows(path, rows)


def pairs(path: Path, count: int = 40, seed: int = 0) -> Path:
    own = zip(sentences(count, seed), sentences(count, seed + 100), strict=True)
    rows = ({"premise": " ".join(a), "hypothesis": " ".join(b), "label": "longer" if len(a) > len(b) else "not"}
            for a, b in own)  # fmt: skip
    return write_rows(path, rows)


def numbers(path: Path, count: int = 40, seed: int = 0) -> Path:
    rows = ({"text": " ".join(w), "label": len(w) + 0.5} for w in sentences(count, seed))
    return write_rows(path, rows)


def sets(path: Path, count: int = 40, seed: int = 0) -> Path:
    """The nouns of a text."""
    rows = ({"text": " ".join(w), "labels": sorted({*w} & {"river", "bank", "homework"})}
            for w in sentences(count, seed))  # fmt: skip
    return write_rows(path, rows)


def tags(path: Path, count: int = 40, seed: int = 0) -> Path:
    """A river is a place, with a bank after it a longer one."""
    lines = []
    for words in sentences(count, seed):
        for word in words:
            lines.append(f"{word}\t{'B-LOC' if word == 'river' else 'O'}\n")
            if word == "river" and len(words) % 2:
                lines.append("bank\tI-LOC\n")
        lines.append("\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_directory(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = save_tiny(tmp_path_factory.mktemp("parent") / "tiny", tiny_model())
    return path


@pytest.fixture
def finetune(capsys: pytest.CaptureFixture[str], tiny_directory: Path) -> Call:
    """`larvatus finetune` in this process: exit code, standard output, standard error."""

    def call(task: str, *arguments: object, model: Path = tiny_directory) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run(["finetune", task, "--model", str(model), *map(str, arguments)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert said.err.count("\n") <= 1, said.err
        return ended.value.code, said.out, said.err.strip()  # type: ignore[return-value]

    return call
