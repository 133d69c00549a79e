"""`larvatus tokenizer train` and `show`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.interfaces.cli.commands.tokenizer import app
from tests.data.text.conftest import TEXTS


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "bpe", "unigram"])
def test_train_then_show(text, tmp_path, kind):
    out = tmp_path / "out"
    size = 250 if kind == "unigram" else 380
    done = run("train", text, "--type", kind, "--size", size, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["type"], report["size"], report["documents"], report["skipped"]) == (kind, size, len(TEXTS), 0)
    shown = json.loads(run("show", out, "The river.", "--json").stdout)
    found = Tokenizer.load(out).encode("The river.")
    assert [row["id"] for row in shown["tokens"]] == found.ids.tolist()
    assert [row["word"] for row in shown["tokens"]] == found.words.tolist()
    assert {row["word_text"] for row in shown["tokens"]} == {"The", "river", "."}
    assert "The" in run("show", out, "The river [bold].").stdout
    assert f"{kind}: {size} tokens" in run("show", out).stdout
    assert json.loads(run("show", out, "--json").stdout)["size"] == size


def test_cased_and_plain_report(text, tmp_path):
    done = run("train", text, "--size", 400, "--out", tmp_path / "out", "--cased")
    assert done.exit_code == 0
    assert "400 tokens" in done.stdout
    assert not Tokenizer.load(tmp_path / "out").lowercase


def test_faults(text, tmp_path):
    out = tmp_path / "out"
    assert isinstance(run("train", text, "--out", out).exception, DataError)  # 30,522 pieces of so little text
    assert not (out / "tokenizer.json").exists()
    assert isinstance(run("train", tmp_path / "none", "--out", out).exception, DataError)
    text.write_bytes(text.read_bytes() + b"\n\xff\n")
    assert "text.txt:72:" in str(run("train", text, "--size", 380, "--out", out).exception)
    done = run("train", text, "--size", 380, "--out", out, "--on-bad", "skip")
    assert "1 × bad UTF-8" in done.stdout
    assert isinstance(run("train", text, "--size", 380, "--out", out).exception, ArtefactError)  # never written over
    lowered = run("train", text, "--type", "byte-bpe", "--lowercase", "--out", tmp_path / "x")
    assert isinstance(lowered.exception, UsageError)
    assert isinstance(run("train", text, "--digits", "apart", "--out", tmp_path / "x").exception, UsageError)
    assert isinstance(run("show", tmp_path / "none").exception, ArtefactError)
