"""`data check --for TASK` reads what fine-tuning for the task reads, and finds what would spoil it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from larvatus.interfaces.cli.main import run

PASSAGE = "Mt. Sanitas is in Sunshine Canyon."


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any], str]:
    """Exit code, the report, and what was complained of."""
    with pytest.raises(SystemExit) as ended:
        run(["data", "check", *map(str, arguments), "--json"])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), json.loads(said.out or "{}"), said.err


def squad(path: Path, *paragraphs: tuple[str, list[tuple[str, str, int]]]) -> Path:
    """Passages, each with questions: id, answer, where it begins."""
    rows = [
        {
            "context": passage,
            "qas": [
                {"id": own, "question": f"Where, {n}?", "answers": [{"text": text, "answer_start": start}]}
                for n, (own, text, start) in enumerate(asked)
            ],
        }
        for passage, asked in paragraphs
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": rows}]}), encoding="utf-8")
    return path


def names(report: dict[str, Any], level: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in report[level]}


def test_questions_are_checked_for_places_ids_passages_and_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(f"word{n}" for n in range(40))
    train = squad(
        tmp_path / "train.json",
        (PASSAGE, [("0", "Sunshine", 18), ("0", "Canyon", 27), ("1", "Sunshine", 17)]),
        (" ", [("2", "x", 0)]),
        (long, [("0", long, 0)]),
    )
    dev = squad(tmp_path / "dev.json", (PASSAGE, [("a", "Mt. Sanitas", 0)]), ("Another one.", [("b", "one", 8)]))
    code, report, err = check(capsys, train, "--dev", dev, "--for", "answer", "--longest", 30)
    assert code == 4
    assert "would stop training" in err
    errors, warnings = names(report, "errors"), names(report, "warnings")
    assert errors["answer out of place"]["count"] == 1
    assert "it is at 18" in errors["answer out of place"]["examples"][0]
    assert sum(one["count"] for one in errors.values()) == 2  # and the empty passage
    assert warnings["repeated ids"]["count"] == 2
    assert warnings["train passages in dev"]["count"] == 1
    assert warnings["train passages in dev"]["examples"][0].startswith(f"{dev}: question a")
    assert warnings["long answers"]["count"] == 1
    assert warnings["long texts"]["count"] == 1
    assert report["sizes"] == {"train": 3, "dev": 2}
    sound = squad(tmp_path / "sound.json", (PASSAGE, [("0", "Sunshine", 18), ("1", "Canyon", 27)]))
    code, report, _ = check(capsys, sound, "--for", "answer")
    assert (code, report["errors"], report["warnings"]) == (0, [], [])


def test_spans_are_read_from_the_columns_that_finetune_spans_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text("the\tB-LOC\tO\nriver\tI-LOC\tB-WATER\n\na\tO\tO\nbank\tB-LOC\tO\n\n")
    dev.write_text("the\tB-LOC\tO\nbank\tI-LOC\tB-ORG\n\n")
    code, report, _ = check(capsys, train, "--dev", dev, "--for", "spans", "--tag", "2,3")
    assert code == 0
    assert report["balance"] == {"train": {"LOC": 2, "WATER": 1}, "dev": {"LOC": 1, "ORG": 1}}
    assert report["kind"] == "spans"
    assert names(report, "warnings")["dev labels unseen in train"]["examples"] == [f"{dev}:1: 'ORG'"]
    _, report, _ = check(capsys, train, "--dev", dev, "--for", "tag", "--tag", "2")
    assert report["balance"]["train"] == {"LOC": 2}
    train.write_text("the\tO\nriver\tB-WATER\n\n")
    code, report, _ = check(capsys, train, "--for", "spans")
    assert (code, report["balance"]["train"]) == (0, {"WATER": 1})  # one type is enough: other words are none
    train.write_text("the\tO\nriver\tO\n\n")
    code, report, _ = check(capsys, train, "--for", "spans")
    assert (code, [*names(report, "errors")]) == (4, ["one class only"])
