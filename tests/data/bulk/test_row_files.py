"""Files of results, read back by readers that are not ours: the csv module, pandas and pyarrow."""

import csv
import json
import math
from pathlib import Path

import pandas as pd
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import UsageError
from larvatus.data.bulk.row_files import check_row_file, row_file

HARD = [
    "plain",
    "tab\there",
    "line\nbreak",
    "carriage\rreturn",
    'a "quote"',
    "comma, semicolon;",
    "größer – 漢字 🙂",
    " x ",
]
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NUMBERS = [0.1, 1e-300, 123456789.123456789, -0.0, 2 / 3]


def write(path: Path, records, rows=None):
    with row_file(path) as give:
        for number, record in enumerate(records):
            give(record, [record] if rows is None else rows[number])
    return path


def read_back(path: Path, delimiter: str):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter=delimiter))


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_hard_texts_and_numbers_read_back_exactly(tmp_path, ending, delimiter):
    records = [{"text": text, "score": number} for text in HARD for number in NUMBERS]
    path = write(tmp_path / f"a.{ending}", records)
    assert [(row["text"], float(row["score"])) for row in read_back(path, delimiter)] == [
        (record["text"], record["score"]) for record in records
    ]
    frame = pd.read_csv(path, sep=delimiter, float_precision="round_trip", lineterminator="\n")
    assert frame["text"].tolist() == [record["text"] for record in records]
    assert frame["score"].tolist() == [record["score"] for record in records]
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options)
    assert table["text"].to_pylist() == [record["text"] for record in records]
    assert table["score"].to_pylist() == [record["score"] for record in records]


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1)
)
def test_any_text_survives_a_csv_file(tmp_path_factory, cells):
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", [{"n": n, "text": cell} for n, cell in enumerate(cells)])
    assert [row["text"] for row in read_back(path, ",")] == cells


def test_none_truth_lists_and_late_columns(tmp_path):
    records = [{"a": None, "b": True, "c": ["x", "y"]}, {"a": 1.5, "b": False, "c": [], "late": "here"}]
    path = write(tmp_path / "a.csv", records)
    assert read_back(path, ",") == [
        {"a": "", "b": "true", "c": '["x", "y"]', "late": ""},
        {"a": "1.5", "b": "false", "c": "[]", "late": "here"},
    ]
    frame = pd.read_csv(path)
    assert frame["b"].tolist() == [True, False]
    assert math.isnan(frame["a"][0])
    assert b"\r" not in path.read_bytes()


def test_flat_rows_go_to_tables_and_full_records_elsewhere(tmp_path):
    record = {"text": "x", "entities": [{"label": "PER"}, {"label": "LOC"}]}
    rows = [{"text": "x", "label": "PER"}, {"text": "x", "label": "LOC"}]
    assert read_back(write(tmp_path / "a.tsv", [record], [rows]), "\t") == rows
    assert json.loads(write(tmp_path / "a.jsonl", [record], [rows]).read_text()) == record
    assert pq.read_table(write(tmp_path / "a.parquet", [record], [rows])).to_pylist() == [record]


def test_parquet_finds_types_over_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("larvatus.data.bulk.row_files.ROWS", 2)
    records = [
        {"score": 1, "words": [], "probabilities": {"good": 0.5}, "none": None},
        {"score": 2, "words": [], "probabilities": {"bad": 1.0}, "none": None},
        {"score": 2.5, "words": [{"text": "é\n"}], "probabilities": None, "none": None, "late": "x"},
    ]
    table = pq.read_table(write(tmp_path / "a.parquet", records))
    assert table["score"].to_pylist() == [1, 2, 2.5]
    assert table["words"].to_pylist() == [[], [], [{"text": "é\n"}]]
    assert table["probabilities"].to_pylist() == [[("good", 0.5)], [("bad", 1.0)], None]  # a map: labels are data
    assert table["late"].to_pylist() == [None, None, "x"]
    assert table["none"].to_pylist() == [None, None, None]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_no_results_are_a_file_all_the_same(tmp_path, ending):
    assert write(tmp_path / f"a.{ending}", []).exists()


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.csv.gz", "a.json", "a.txt"])
def test_other_endings_are_refused_before_any_work(tmp_path, name):
    with pytest.raises(UsageError, match=r"names no known format; end it in \.jsonl, \.csv, \.tsv, \.parquet"):
        check_row_file(tmp_path / name)
    check_row_file(tmp_path / "a.CSV")
    check_row_file(tmp_path / "a.json", also=(".json",))
    check_row_file(Path("/dev/null"))


def test_a_file_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"), row_file(tmp_path / "a.csv") as give:
        give({"a": 1}, [{"a": 1}])
        raise RuntimeError("stopped")
    assert list(tmp_path.iterdir()) == []
