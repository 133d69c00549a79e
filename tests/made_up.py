"""Labelled files of a few words, and the command that fine-tunes a tiny model on them; a pytest plugin, as tiny.py."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.rng import stream
from larvatus.interfaces.cli import output as progress
from larvatus.interfaces.cli.main import run

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


def nested(path: Path, count: int = 40, seed: int = 0) -> Path:
    """A river with the bank after it is a place, and the river in it water; as CoNLL, CoNLL-U or JSONL, by the name."""
    texts = []
    for words in sentences(count, seed):
        texts.append(["please", "river", "bank", *words] if len(words) % 2 else words)
    write = {".conll": _levels, ".conllu": _brackets, ".jsonl": _characters}[path.suffix]
    path.write_text("".join(write(words) for words in texts), encoding="utf-8")
    return path


def _found(words: list[str]) -> list[tuple[int, int, str]]:
    """Words [start, end) and types, outer ones first."""
    found = []
    for at, word in enumerate(words):
        if word == "river":
            if words[at + 1 : at + 2] == ["bank"]:
                found.append((at, at + 2, "LOC"))
            found.append((at, at + 1, "WATER"))
    return found


def _levels(words: list[str]) -> str:
    outer, inner = ["O"] * len(words), ["O"] * len(words)
    for start, end, label in _found(words):
        (outer if label == "LOC" else inner)[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
    rows = zip(range(1, len(words) + 1), words, outer, inner, strict=True)
    return "".join(f"{n}\t{word}\t{one}\t{other}\n" for n, word, one, other in rows) + "\n"


def _brackets(words: list[str]) -> str:
    opens, closes = [""] * len(words), [""] * len(words)
    for number, (start, end, label) in enumerate(_found(words), start=1):
        opens[start] += f"({number}-{label.lower()}-new" + (")" if end == start + 1 else "")
        if end > start + 1:
            closes[end - 1] += f"{number})"
    lines = []
    for number, word in enumerate(words):
        misc = f"Entity={opens[number]}{closes[number]}" if opens[number] or closes[number] else "_"
        lines.append("\t".join([str(number + 1), word, *["_"] * 7, misc]) + "\n")
    return "".join(["# global.Entity = GRP-etype-infstat\n", *lines, "\n"])


def _characters(words: list[str]) -> str:
    starts = [len(" ".join(words[:at])) + (at > 0) for at in range(len(words))]
    spans = [{"start": starts[start], "end": starts[end - 1] + len(words[end - 1]), "label": label}
             for start, end, label in _found(words)]  # fmt: skip
    return json.dumps({"text": " ".join(words), "spans": spans}) + "\n"


def asked(path: Path, count: int = 40, seed: int = 0, *, without: float = 0.0) -> Path:
    """SQuAD's JSON: which place? The river or bank of the passage and the word after it; some have none."""
    random = stream(seed, "test questions")
    paragraphs = []
    for number in range(count):
        words = random.choice(["the", "a", "of", "was", "wide", "deep"], size=9).tolist()
        at, none = int(random.integers(0, 7)), bool(random.random() < without)
        if not none:
            words[at] = str(random.choice(["river", "bank"]))
        start = len(" ".join(words[:at])) + (at > 0)
        answers = [] if none else [{"text": " ".join(words[at : at + 2]), "answer_start": start}]
        own = {"id": f"q{number}", "question": "in the river ?", "answers": answers}
        more = {"is_impossible": none} if without else {}
        paragraphs.append({"context": " ".join(words), "qas": [own | more]})
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_directory(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = save_tiny(tmp_path_factory.mktemp("parent") / "tiny", tiny_model())
    return path


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Any command in this process: exit code, standard output, standard error.

    Without the progress that a command prints where it takes longer than half a minute, as on a busy machine.
    """
    monkeypatch.setattr(progress, "EVERY", math.inf)

    def call(*arguments: object, stdin: str | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            run([str(word) for word in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(ended.value.code or 0), said.out, said.err.strip()

    return call


@pytest.fixture
def larvatus(run_command: Call) -> Call:
    """The same; tests of one command, or of faults, have a fixture of this name of their own."""
    return run_command


@pytest.fixture
def finetune(run_command: Call, tiny_directory: Path) -> Call:
    """`larvatus finetune` in this process: exit code, standard output, standard error."""

    def call(task: str, *arguments: object, model: Path = tiny_directory) -> tuple[int, str, str]:
        code, out, complaint = run_command("finetune", task, "--model", model, *arguments)
        assert "\n" not in complaint, complaint
        return code, out, complaint

    return call
