"""Tables as text: one document a row, from the column that is named or guessed; the csv module writes what is read."""

import csv
import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.columns import column_notes_to
from larvatus.data.text.readers import ReadOptions, Skipped, list_files, read_documents

ROWS = [
    {"id": "0", "title": "First", "text": "The river was wide; and deep.", "label": "a"},
    {"id": "1", "title": "Second", "text": 'He said "turn",\nand it turned.', "label": "b"},
    {"id": "2", "title": "Third", "text": "Ein Fluß, größer.", "label": "a"},
]


def write_csv(path, rows=ROWS, *, delimiter=",", bom=False):
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def texts(*paths, skipped=None, **options):
    return [document.text for document in read_documents(paths, options=ReadOptions(**options), skipped=skipped)]


@pytest.fixture
def notes():
    said: list[str] = []
    with column_notes_to(said.append):
        yield said


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("bom", [False, True])
def test_a_csv_file_is_a_document_a_row(tmp_path, notes, delimiter, bom):
    path = write_csv(tmp_path / "news.csv", delimiter=delimiter, bom=bom)
    documents = list(read_documents([path]))
    assert [document.text for document in documents] == [row["text"] for row in ROWS]
    assert [document.line for document in documents] == [2, 3, 5]  # the second text has a line break
    assert notes == [f"{path}: 3 rows, text from column 'text' (id, title, label ignored); choose with --text COLUMN"]


def test_a_column_can_be_chosen_by_name_or_number(tmp_path, notes):
    path = write_csv(tmp_path / "news.csv")
    titles = [row["title"] for row in ROWS]
    assert texts(path, text_field="title") == titles
    assert texts(path, text_field="2") == titles
    assert notes == []  # nothing was guessed
    with pytest.raises(UsageError, match=r"no column 'body' \(it has id, title, text, label\)"):
        texts(path, text_field="body")


def test_a_name_that_was_given_makes_its_row_a_header(tmp_path, notes):
    """Questions of a survey are no names that people give columns."""
    path = tmp_path / "survey.csv"
    rows = [["What would you change about the river and why?", "Where?"], ["the bank", "here"], ["nothing", "there"]]
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    assert texts(path, text_field=rows[0][0]) == ["the bank", "nothing"]


def test_a_column_named_text_is_not_guessed_around(tmp_path, notes):
    path = write_csv(tmp_path / "a.csv", [{"body": "the river was wide", "n": "1"}, {"body": "and deep", "n": "2"}])
    assert texts(path) == ["the river was wide", "and deep"]
    with pytest.raises(UsageError, match="no column 'text'"):
        list(read_documents([path], options=ReadOptions().named("text")))


def test_the_guess_goes_by_names_then_by_length(tmp_path, notes):
    rows = [{"id": str(n), "code": f"x{n % 2}", "remark": f"a longer remark with the number {n}"} for n in range(8)]
    assert texts(write_csv(tmp_path / "a.csv", rows)) == [row["remark"] for row in rows]
    pairs = [{"question": "Which?", "context": f"A passage of some length, with number {n}."} for n in range(8)]
    assert texts(write_csv(tmp_path / "b.csv", pairs)) == [row["context"] for row in pairs]
    assert "column 'remark' (id, code ignored)" in notes[0]


def test_tsv_has_no_quoting_and_may_have_no_header(tmp_path, notes):
    path = tmp_path / "a.tsv"
    path.write_text('1\tthe "river" was wide\n0\tand "deep\n' * 3, encoding="utf-8")
    assert texts(path) == ['the "river" was wide', 'and "deep'] * 3
    assert "text from column 2 (it has no header) (1 ignored)" in notes[0]


def test_compressed_tables_are_read(tmp_path, notes):
    plain = write_csv(tmp_path / "a.csv").read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(plain))
    assert texts(tmp_path / "a.csv.gz") == [row["text"] for row in ROWS]


def test_empty_cells_are_skipped_and_counted(tmp_path, notes):
    rows = [{"text": text, "label": "x"} for text in ("one", "", "  ", "two")] + [{"text": "", "label": ""}]
    skipped = Skipped()
    path = write_csv(tmp_path / "a.csv", rows)
    assert texts(path, skipped=skipped) == ["one", "two"]
    assert skipped.blank == 3
    assert notes[-1] == f"{path}: 3 rows without text skipped"


def test_a_table_without_text_is_refused_by_name(tmp_path):
    path = write_csv(tmp_path / "numbers.csv", [{"a": "1", "b": "2.5"}, {"a": "2", "b": "3"}])
    with pytest.raises(DataError, match=r"numbers\.csv: no column holds text \(it has a, b\)"):
        texts(path)
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match=r"numbers\.parquet: no column holds text \(it has a\)"):
        texts(tmp_path / "numbers.parquet")


def test_rows_that_cannot_be_read_name_their_line_or_are_counted(tmp_path, notes):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfine,1\ntoo,many,cells\nlast,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv:3: 3 columns, but the first row has 2; .*--on-bad skip"):
        texts(path)
    skipped = Skipped()
    assert texts(path, skipped=skipped, on_bad="skip") == ["fine", "last"]
    assert skipped.bad == {"wrong number of columns": 1}
    path.write_bytes(b"text,label\nfine,1\ncaf\xe9,2\n")
    with pytest.raises(DataError, match=r"a\.csv:3: byte 0xe9"):
        texts(path)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_records_without_a_field_text_are_guessed_too(tmp_path, notes, kind):
    rows = [{"id": n, "body": f"the body of number {n}", "label": "x"} for n in range(5)]
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    assert texts(path) == [row["body"] for row in rows]
    assert notes == [f"{path}: 5 rows, text from column 'body' (id, label ignored); choose with --text COLUMN"]
    assert texts(path, text_field="label") == ["x"] * 5


def test_files_with_the_same_columns_are_reported_once(tmp_path, notes):
    for name in ("a.csv", "b.csv", "c.csv"):
        write_csv(tmp_path / name)
    assert len(texts(tmp_path / "*.csv")) == 9
    assert len(notes) == 1


def test_in_python_the_guess_goes_to_the_log(tmp_path, caplog):
    path = write_csv(tmp_path / "in_python.csv")
    with caplog.at_level(logging.WARNING, logger="larvatus"):
        texts(path)
        texts(path)
    assert [record.message for record in caplog.records if "in_python.csv" in record.message] == [
        f"{path}: 3 rows, text from column 'text' (id, title, label ignored); choose with --text COLUMN"
    ]


def test_a_directory_keeps_its_meaning(tmp_path):
    """Tables in a folder of texts may be their metadata: a corpus must not change because they can be read now."""
    (tmp_path / "a.txt").write_text("plain", encoding="utf-8")
    write_csv(tmp_path / "metadata.csv")
    skipped = Skipped()
    assert texts(tmp_path, skipped=skipped) == ["plain"]
    assert skipped.ignored == {".csv": 1}
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"tables are read where they are named: .*/\*\.csv"):
        list_files([tmp_path])


def test_the_sample_is_bounded_and_rows_stream(tmp_path, monkeypatch, notes):
    from larvatus.data.text import delimited

    monkeypatch.setattr(delimited, "SAMPLE_ROWS", 10)
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"row {n} of many,x\n" for n in range(100)) + "broken\n", encoding="utf-8")
    documents = read_documents([path])
    assert [next(documents).text for _ in range(100)] == [f"row {n} of many" for n in range(100)]
    assert "over 10 rows" in notes[0]
    with pytest.raises(DataError, match=r"a\.csv:102"):
        next(documents)
