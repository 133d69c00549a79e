"""Minimal pairs from files to accuracies; a run that was killed ends with the same file."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from larvatus.core.errors import ArtefactError, DataError
from larvatus.evaluation.compare import minimal_pairs
from larvatus.evaluation.compare.minimal_pairs import MinimalPair, PairRun, read_pairs
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.model import load
from larvatus.interfaces.cli.main import app

Make = Callable[..., Any]
WORDS = ["river", "bank", "homework"]
PAIRS = [
    {"sentence_good": f"the {a} was {b} .", "sentence_bad": f"the {a} {b} was .", "UID": b, "field": "syntax"}
    for a in WORDS
    for b in ("wide", "deep", "running")
]


@pytest.fixture(scope="module")
def directory(tiny_model: Make, save_tiny: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = save_tiny(tmp_path_factory.mktemp("m"), tiny_model(seed=3))
    return made


@pytest.fixture
def blimp(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl.xz"
    path.write_bytes(lzma.compress("".join(json.dumps(pair) + "\n" for pair in PAIRS).encode()))
    return path


def run(*arguments: Any, **options: Any) -> Any:
    return CliRunner().invoke(app, ["score", *map(str, arguments)], **options)


def test_accuracy_is_how_often_the_good_sentence_scores_higher(directory: Path, blimp: Path) -> None:
    model = load(directory, device="cpu")
    found = PairRun(model.network, model.tokenizer, read_pairs([str(blimp)])).finish()
    right = []
    for pair in PAIRS:
        good, bad = (
            list(score_texts(model.network, model.tokenizer, [pair[f"sentence_{w}"]])) for w in ("good", "bad")
        )
        right.append(good[0].total > bad[0].total)
    assert 0 < sum(right) < len(right)
    assert (found.overall.right, found.overall.total) == (sum(right), 9)
    assert found.by["field"]["syntax"] == found.overall
    assert found.by["UID"]["deep"].right == sum(right[1::3])
    assert "linguistics_term" not in found.by


def test_sentences_that_a_vocabulary_cannot_tell_apart_are_ties(directory: Path) -> None:
    model = load(directory, device="cpu")
    pairs = [MinimalPair(good="The River", bad="the river"), MinimalPair(good="the cat", bad="the dog")]
    found = PairRun(model.network, model.tokenizer, pairs).finish()
    assert (found.overall.right, found.ties) == (0, 2)


@pytest.mark.parametrize("cut", [b"", b'{"sentence_good": "half a li'])
def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_file(
    directory: Path, blimp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bytes
) -> None:
    monkeypatch.setattr(minimal_pairs, "BLOCK", 2)
    base = ["--pairs", blimp, "--model", directory, "--json"]
    whole = run(*base, "--out", tmp_path / "whole.jsonl")
    assert whole.exit_code == 0, whole.output
    calls = 0

    def killed(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return score_texts(*arguments, **options)

    out = tmp_path / "scores.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(minimal_pairs, "score_texts", killed)
        assert run(*base, "--out", out).exit_code != 0
    part = tmp_path / "scores.jsonl.parts" / "scores.jsonl"
    assert len(part.read_bytes().splitlines()) == 4
    with part.open("ab") as stream:
        stream.write(cut)
    refused = run(*base, "--out", out)
    assert isinstance(refused.exception, ArtefactError)
    assert "unfinished run; continue with --resume" in str(refused.exception)
    other = run(*base, "--out", out, "--resume", "--method", "word-l2r")
    assert "was started with another method" in str(other.exception)
    read = []
    with monkeypatch.context() as patched:
        patched.setattr(minimal_pairs, "score_texts", lambda *a, **o: read.extend(a[2]) or score_texts(*a, **o))
        resumed = run(*base, "--out", out, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert len(read) == 2 * 5  # four pairs stood
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not part.parent.exists()
    first, second = json.loads(whole.stdout), json.loads(resumed.stdout)
    assert first["overall"] == second["overall"]
    assert first["by"] == second["by"]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["preferred"] for row in rows].count(True) == first["overall"]["right"]
    assert "is there already" in str(run(*base, "--out", out).exception)


def test_normalised_scores_are_divided_by_tokens_or_words(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("good\tbad\tkind\nthe turnings was wide\tthe river\tlength\n", encoding="utf-8")
    rows = {}
    for by in ("none", "token", "word"):
        out = tmp_path / f"{by}.jsonl"
        assert run("--pairs", path, "--model", directory, "--normalise", by, "--out", out).exit_code == 0
        rows[by] = json.loads(out.read_text())
    assert rows["token"]["good"] == pytest.approx(rows["none"]["good"] / 6)
    assert rows["word"]["good"] == pytest.approx(rows["none"]["good"] / 4)
    assert rows["word"]["UID"] == "length"


def test_the_command_shows_a_table_by_phenomenon(directory: Path, blimp: Path) -> None:
    found = run("--pairs", blimp, "--model", directory)
    assert found.exit_code == 0, found.output
    assert "phenomenon" in found.stdout
    assert "deep" in found.stdout
    assert "overall:" in found.stdout
    assert "pairs/s" in found.stdout


def test_texts_from_arguments_files_and_pipes(directory: Path, tmp_path: Path) -> None:
    expected = [score.to_dict() for score in load(directory, device="cpu").score(["the river .", "a bank !"])]
    file = tmp_path / "texts.txt"
    file.write_text("the river .\n\na bank !\n", encoding="utf-8")
    ways = [
        run("the river .", "a bank !", "--model", directory, "--json"),
        run("-", "--model", directory, "--json", input="the river .\n\na bank !\n"),
        run("--file", file, "--model", directory, "--json"),
    ]
    for found in ways:
        assert found.exit_code == 0, found.output
        assert [json.loads(line) for line in found.stdout.splitlines()] == expected
    shown = run("the rivers .", "[MASK] !", "--model", directory, "--method", "word-l2r").stdout
    assert "river ##s" in shown
    assert "all 2 texts: pseudo-log-likelihood" in shown
    assert "MASK" in shown  # is text
    assert "tokens are unknown to the vocabulary" in shown


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b'{"sentence_good": "a"}\n', "pairs:1: no field 'sentence_bad'"),
        (b'{"sentence_good": "a", "sentence_bad": 3}\n', "pairs:1: field 'sentence_bad' is int, not a string"),
        (b'{"sentence_good": "a", "sentence_bad": "b"}\n\n{"sent', "pairs:3: broken JSON"),
        (b'{"sentence_good": "a", "sentence_bad": "b"}\n[1]\n', "pairs:2: the line is not a JSON object"),
        (b'{"sentence_good": "a", "sentence_bad": " "}\n', "pairs:1: a sentence is empty"),
        (b"good\tbad\na\tb\nno tab\n", "pairs:3: 1 columns; write good<TAB>bad"),
        (b"a\tb\tc\td\n", "pairs:1: 4 columns"),
        (b"a\tb\n\xff\tb\n", "pairs:2: byte 0xff at 1 is not UTF-8"),
        (b"\n \n", "no minimal pairs in"),
        (b"", "no minimal pairs in"),
    ],
)
def test_a_bad_pair_file_is_named_with_its_line(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "pairs"
    path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_pairs([str(path)])


def test_a_broken_archive_and_a_sentence_without_tokens_are_named(tmp_path: Path, directory: Path, blimp: Path) -> None:
    broken = tmp_path / "broken.jsonl.xz"
    broken.write_bytes(blimp.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"broken.jsonl.xz is no whole .xz file"):
        read_pairs([str(broken)])
    path = tmp_path / "pairs.tsv"
    path.write_text("the river\tthe bank\nthe\t\u0301\n", encoding="utf-8")
    found = run("--pairs", path, "--model", directory)
    assert f"{path}:2: the bad sentence has no tokens" in str(found.exception)
