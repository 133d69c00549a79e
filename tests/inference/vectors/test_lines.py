"""The line that a result cites is the line of the file in which the word stands, whatever it was read through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from larvatus.data.text.readers import read_documents
from larvatus.inference.maps.instances import FindOptions, find_instances
from larvatus.interfaces.cli.main import run

LINES = [
    "The river was wide. Please turn",
    "your homework in.",
    "",
    "the river was deep and",
    "the bank of the river was wide.",
    "a deep river. The bank was",
    "wide and a bank .",
]
"""Two documents, each over several lines; sentences run over line breaks."""
BANKS = [number for number, line in enumerate(LINES, start=1) for word in line.split() if word == "bank"]


@pytest.fixture(scope="module")
def directory(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = save_tiny(tmp_path_factory.mktemp("model"), tiny_model())
    return made


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def call(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        run([str(one) for one in arguments])
    assert ended.value.code in (0, None)


def cited(directory: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> list[int]:
    capsys.readouterr()
    call("similar", "the *bank* was wide", "--in", place, "--model", directory, "--top", 9, "--json")
    return sorted(row["line"] for row in json.loads(capsys.readouterr().out)["hits"])


def test_text_an_index_and_a_vector_file_cite_the_same_lines(
    directory: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors, index = tmp_path / "v.parquet", tmp_path / "bank.index"
    call("embed", corpus, "--unit", "word", "--model", directory, "--out", vectors)
    call("similar", "index", corpus, "--word", "bank", "--model", directory, "--out", index)
    assert BANKS == [5, 6, 7]
    for place in (corpus, vectors, index):
        assert cited(directory, place, capsys) == BANKS, place


@pytest.mark.parametrize("unit", ["token", "word", "sentence", "document"])
def test_every_unit_of_a_vector_file_has_the_line_that_it_begins_in(
    directory: Path, corpus: Path, tmp_path: Path, unit: str
) -> None:
    vectors = tmp_path / "v.parquet"
    call("embed", corpus, "--unit", unit, "--model", directory, "--out", vectors)
    for row in pq.read_table(vectors).to_pylist():
        first = row["text"].split("\n")[0].split()[0]
        assert first.lower() in LINES[row["line"] - 1].lower(), row["text"]


def test_a_record_is_one_line_however_its_text_breaks(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, vectors = tmp_path / "text.jsonl", tmp_path / "v.parquet"
    rows.write_text(json.dumps({"text": "the river\nwas wide"}) + "\n" + json.dumps({"text": "a\nbank\nbank"}) + "\n")
    call("embed", rows, "--unit", "word", "--model", directory, "--out", vectors)
    for place in (rows, vectors):
        assert cited(directory, place, capsys) == [2, 2], place


def test_points_of_a_map_cite_the_lines_of_their_words(corpus: Path) -> None:
    found = find_instances(read_documents([str(corpus)]), ["bank"], FindOptions())
    assert sorted(one.line for one in found.instances) == BANKS
