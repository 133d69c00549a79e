"""Odd inputs beyond the table: cells that are formulas, names that are not UTF-8, readers under random damage (79)."""

from __future__ import annotations

import csv
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import LarvatusError
from larvatus.core.files import aside_of, read_json, write_json
from larvatus.core.tables import spreadsheet_cell
from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tagged import read_spanned, read_tagged
from larvatus.data.labelled.texts import read_texts
from larvatus.data.text.readers import read_documents
from larvatus.evaluation.compare.minimal_pairs import read_pairs
from larvatus.evaluation.compare.word_similarity import read_scws, read_wic
from larvatus.models.recipes import read_recipe
from tests import warm
from tests.made_up import asked, classes, nested, tags
from tests.patience import WATCHDOG_S

ODD = os.fsdecode(b"caf\xe9.txt")
READERS: dict[str, Callable[[str], object]] = {
    "texts": lambda name: read_texts([name]),
    "tagged": lambda name: read_tagged([name]),
    "spanned": lambda name: read_spanned([name]),
    "questions": lambda name: read_questions([name]),
    "documents": lambda name: list(read_documents([name])),
    "pairs": lambda name: read_pairs([name]),
    "scws": lambda name: list(read_scws(Path(name))),
    "wic": lambda name: list(read_wic(Path(name))),
    "recipe": read_recipe,
}
PIECES = [
    b"\0",
    b"\xff",
    b"\n\n",
    b"\t",
    b'"',
    b"{",
    b"}",
    b"[" * 2_000,
    b"null",
    b"-1",
    b"9" * 5_000,
    b"NaN",
    b"\\ud800",
]


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@x", "'@x"), ("\t=1", "'\t=1"), ("\r=1", "'\r=1"),
     ("-0.5", "-0.5"), ("+3", "+3"), ("a=b", "a=b"), ("", ""), ("'tis", "'tis")],
)  # fmt: skip
def test_79_a_cell_that_would_be_a_formula_is_text(text: str, cell: str) -> None:
    assert spreadsheet_cell(text) == cell
    assert spreadsheet_cell(-0.5) == -0.5


def test_79_a_map_writes_no_formulas(larvatus, tiny_model, save_tiny, tmp_path) -> None:
    model = save_tiny(tmp_path / "model", tiny_model())
    (tmp_path / "text.txt").write_text('=HYPERLINK("x") the bank.\n\n-1 of the bank of a river.\n\nThe bank.\n' * 3)
    command = ("map", "bank", "--corpus", tmp_path / "text.txt", "--split", "blank-line", "--method", "pca")
    assert larvatus(*command, "--sentences", "newline", "--model", model, "--csv", tmp_path / "m.csv")[0] == 0
    with (tmp_path / "m.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert any(row["text"].startswith("'=HYPERLINK") for row in rows)
    assert any(row["text"].startswith("'-1 of") for row in rows)
    assert any(float(row["x"]) < 0 for row in rows)


def test_79_names_that_are_not_utf_8_are_read_and_written(tiny_model, save_tiny, tmp_path):
    model = save_tiny(tmp_path / "model", tiny_model())
    (tmp_path / ODD).write_text("The river ran past the bank.\n")
    out = tmp_path / os.fsdecode(b"\xff.parquet")
    command = ["embed", tmp_path / ODD, "--unit", "word", "--model", model, "--out", out, "--device", "cpu"]
    done = warm.run([sys.executable, "-m", "larvatus", *map(str, command)], capture_output=True, timeout=WATCHDOG_S)
    assert done.returncode == 0, done.stderr
    with out.open("rb") as file:
        assert pq.read_table(file)["source"][0].as_py() == str(tmp_path / r"caf\xe9.txt")


def test_79_json_of_such_names_is_json(tmp_path) -> None:
    write_json(tmp_path / "a.json", {"name": ODD})
    assert read_json(tmp_path / "a.json") == {"name": r"caf\xe9.txt"}


def test_78_the_longest_name_that_a_system_takes_is_written(tmp_path) -> None:
    path = tmp_path / ("x" * 250 + ".json")
    write_json(path, {})
    assert read_json(path) == {}
    assert len(os.fsencode(aside_of(path).name)) < 255


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> list[tuple[str, bytes]]:
    folder = tmp_path_factory.mktemp("sound")
    scws = "1\tbank\tn\tshore\tn\tthe <b>bank</b> of\tthe <b>shore</b> x\t5.5\t1\n" * 2
    wic = '{"label": 1, "text": "Word: bank. Sentence 1: the bank. Sentence 2: a bank."}\n'
    paths = [classes(folder / "a.jsonl", 6), tags(folder / "b.conll", 6), nested(folder / "c.conllu", 6)]
    paths += [nested(folder / "d.jsonl", 6), asked(folder / "e.json", 3)]
    return [
        *((path.suffix, path.read_bytes()) for path in paths),
        (".tsv", scws.encode()),
        (".jsonl", wic.encode()),
        (".tsv", b"the good one\tone good the\tx\n"),
        (".toml", b'base = "bert"\n[model]\nlayers = 2\n[[phases]]\nlength = 8\n'),
        (".csv", b'text,label\n"a, b",x\nc d,y\n'),
    ]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_79_damaged_files_are_refused_and_nothing_else(sound, tmp_path_factory, seed: int) -> None:
    """Valid files of every format, damaged at random, read by every reader: a `LarvatusError`, or what still stands."""
    draw = random.Random(seed)
    suffix, contents = draw.choice(sound)
    damaged = bytearray(contents)
    for _ in range(draw.choice((1, 2, 5))):
        at = draw.randrange(len(damaged) + 1)
        damaged[at : at + draw.choice((0, 1, 8, 40))] = draw.choice([*PIECES, damaged[at // 2 : at // 2 + 30], b""])
    path = tmp_path_factory.mktemp("damaged") / f"a{suffix}"
    path.write_bytes(damaged)
    for reader in READERS.values():
        try:
            reader(str(path))
        except LarvatusError:
            continue


@pytest.mark.parametrize("name", ["x" * 300, ".", "no/such/folder"])
def test_78_an_output_that_the_system_refuses_is_named(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LarvatusError, match="choose another --out"):
        write_json(Path(name), {})
