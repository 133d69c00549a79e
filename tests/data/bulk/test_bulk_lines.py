"""Answers and scores in files that can be resumed; bad rows set aside; addresses that can be read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

from larvatus.core.signals import Stopped
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.sources import fingerprint
from larvatus.interfaces.cli.main import with_address
from tests.data.bulk.conftest import prose


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    texts = prose(tmp_path / "a.txt", 120, words=12).read_text().split("\n\n")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def stopped_after(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    write, seen = PartsFolder.write, []

    def stop(self: Any, *arguments: Any, **named: Any) -> None:
        write(self, *arguments, **named)
        seen.append(1)
        if len(seen) == parts:
            raise Stopped("SIGTERM")

    monkeypatch.setattr(PartsFolder, "write", stop)


@pytest.mark.parametrize("command", ["predict", "score"])
def test_a_stopped_run_goes_on_and_ends_with_the_bytes_of_an_unbroken_one(
    larvatus: Any,
    classifier: Path,
    tiny_directory: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr("larvatus.interfaces.cli.commands.score.LINES_AT_ONCE", 40)
    model = [classifier] if command == "predict" else ["--model", tiny_directory]
    given = [command, *model, "--file", rows, "--resume", "--out"]
    assert larvatus(*given, tmp_path / "whole.jsonl")[0] == 0
    with monkeypatch.context() as patch:
        stopped_after(patch, 2)
        code, _, complaint = larvatus(*given, tmp_path / "cut.jsonl")
    assert (code, "from what was written" in complaint) == (75, True), complaint
    assert not (tmp_path / "cut.jsonl").exists()
    assert larvatus(*given, tmp_path / "cut.jsonl")[0] == 0
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert len((tmp_path / "cut.jsonl").read_text().splitlines()) == 120
    assert not (tmp_path / "cut.jsonl.parts").exists()


def test_a_run_does_not_go_on_with_other_text(
    larvatus: Any, classifier: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["predict", classifier, "--file", rows, "--resume", "--out", tmp_path / "answers.jsonl"]
    with monkeypatch.context() as patch:
        stopped_after(patch, 2)
        assert larvatus(*given)[0] == 75
    rows.write_text(rows.read_text().replace("river", "bank"))
    code, _, complaint = larvatus(*given)
    assert (code, "was begun with other settings (inputs" in complaint) == (5, True)


def test_an_address_is_told_by_its_storage() -> None:
    storage = fsspec.filesystem("memory")
    storage.pipe("/texts/a.txt", b"one")
    before = fingerprint(["memory://texts/a.txt"])
    assert before is not None
    assert before == fingerprint(["memory://texts/a.txt"])
    storage.pipe("/texts/a.txt", b"another")
    assert fingerprint(["memory://texts/a.txt"]) != before
    assert fingerprint(["-"]) is None


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["embed", "--ray"], ["embed", "--ray", "auto"]),
        (["embed", "--ray", "10.0.0.4:6379", "a"], ["embed", "--ray", "10.0.0.4:6379", "a"]),
        (["embed", "--ray", "--out", "x"], ["embed", "--ray", "auto", "--out", "x"]),
        (["embed", "--ray", "s3://bucket/x"], ["embed", "--ray", "auto", "s3://bucket/x"]),
        (["fill", "--", "--ray"], ["fill", "--", "--ray"]),
    ],
)
def test_an_address_may_be_left_out(words: list[str], wanted: list[str]) -> None:
    assert with_address(words) == wanted
