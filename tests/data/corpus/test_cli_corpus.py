"""`larvatus corpus build | show | verify`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from larvatus.core.errors import DataError
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.interfaces.cli.commands.corpus import app


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_build_show_and_verify(text_file: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "vocabulary")
    build = ("build", text_file, "--tokenizer", tmp_path / "vocabulary", "--out", tmp_path / "corpus")
    done = typed(*build, "--workers", 1, "--licence", "public domain", "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    corpus = Corpus.open(tmp_path / "corpus")
    assert summary["counts"]["tokens"] == corpus.tokens
    assert summary["counts"]["documents"] == 400
    again = typed(*build, "--licence", "public domain")
    assert "is there already, unchanged" in again.stdout

    shown = typed("show", tmp_path / "corpus").stdout
    assert f"{corpus.tokens:,}" in shown
    assert "public domain" in shown
    first = text_file.read_text().split(".")[0].lower()
    assert first in shown.replace("\n", " ")
    assert json.loads(typed("show", tmp_path / "corpus", "--json").stdout)["samples"]

    assert "1 shards are whole" in typed("verify", tmp_path / "corpus").stdout
    assert json.loads(typed("verify", tmp_path / "corpus", "--json").stdout)["tokens"] == corpus.tokens


def test_verify_names_a_damaged_shard(corpus: Corpus, tmp_path: Path) -> None:
    for path in corpus.path.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(corpus.path)).parent.mkdir(exist_ok=True)
            (tmp_path / path.relative_to(corpus.path)).write_bytes(path.read_bytes())
    with (tmp_path / "00000.arrow").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    with pytest.raises(DataError, match=r"00000\.arrow does not match its checksum"):
        raise typed("verify", tmp_path).exception or AssertionError("verified")
