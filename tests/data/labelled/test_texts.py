"""Texts and pairs from tables: formats, columns guessed and asked for, kinds of labels, every fault with its line."""

import csv
import gzip
import io
import json
import lzma
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.tables import Columns, TableOptions, open_table
from larvatus.data.labelled.tagged import read_tagged
from larvatus.data.labelled.texts import read_texts

COLA = "".join(f"{source}\t{n % 3 != 0:d}\t{'' if n % 3 else '*'}\tThe sailors rode breeze number {n}.\n"
               for source in ("gj04", "cj99") for n in range(40))  # fmt: skip
BROKEN = lzma.compress(b"text\tlabel\n" + b"one\tx\n" * 20_000)[:60]


def test_glue_like_tsv_keeps_quotation_marks_and_counts_lines(write):
    path = write(
        "train.tsv", 'index\tsentence1\tsentence2\tlabel\n0\tHe said "no.\tShe left."\tentailment\n1\ta\tb\tnot\n'
    )
    found = read_texts(path)
    assert [example.text for example in found] == ['He said "no.', "a"]
    assert found.examples[0].pair == 'She left."'
    assert str(found.examples[1].place) == f"{path}:3"
    assert (found.examples[1].id, found.kind) == ("1", "multi-class")
    assert found.columns == "read as: text = sentence1, pair = sentence2, label = label (2 classes: entailment, not)"


def test_cola_without_a_header_is_read_by_its_contents(write):
    found = read_texts(write("train.tsv", COLA))
    assert found.columns == "read as: text = column 4, label = column 2 (2 classes: 0, 1)"
    assert len(found) == 80
    assert found.examples[0].place.line == 1


def test_three_columns_without_a_header_are_a_pair_and_its_label(write):
    rows = [
        (f"他说第{n}次妈妈。", f"校车把他放下第{n}次。", ("neutral", "entailment", "contradiction")[n % 3])
        for n in range(60)
    ]
    found = read_texts(write("dev-zh.tsv", "".join("\t".join(row) + "\n" for row in rows)))
    assert found.columns.startswith("read as: text = column 1, pair = column 2, label = column 3 (3 classes")
    assert len(found) == 60


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "text = #1 String, pair = #2 String, label = Quality"),
        ("id\tpremise\tx\thypothesis\tgold_label", "text = premise, pair = hypothesis, label = gold_label"),
        ("a\tquestion\tb\tsentence\tlabel", "text = question, pair = sentence, label = label"),
        ("label\tcontent\tc\td\te", "text = content, label = label"),
    ],
)
def test_known_names_are_taken_at_their_word(write, header, said):
    found = read_texts(write("t.tsv", f"{header}\n1\t2 a b\t3\t4 a b\t5\n2\t2 a c\t4\t4 a c\t6\n"))
    assert said in found.columns


def test_columns_can_be_given_by_name_and_number(write):
    path = write("t.csv", "text,other,label\none,two,x\nthree,four,y\n")
    assert [e.text for e in read_texts(path, Columns(text="other"))] == ["two", "four"]
    assert [e.text for e in read_texts(path, Columns(text=2, pair=1))] == ["two", "four"]
    assert read_texts(path, Columns(text="2", pair=1)).examples[0].pair == "one"


def test_an_unknown_column_is_named_with_the_nearest(write):
    path = write("t.csv", "sentence,label\none,x\nthree,y\n")
    with pytest.raises(DataError, match=r"t\.csv has no column 'sentense' for the text; did you mean sentence\?"):
        read_texts(path, Columns(text="sentense"))
    with pytest.raises(DataError, match=r"has 2 columns, no column 7 for the label"):
        read_texts(path, Columns(label=7))
    with pytest.raises(DataError, match=r"no column looks like a label .* name it: --label COLUMN"):
        read_texts(write("u.csv", "text\none\ntwo\n"))
    with pytest.raises(DataError, match=r"it has no header: give a number, 1 to 2"):
        read_texts(path, Columns(label="label"), options=TableOptions(header=False))


def test_quoted_csv_may_hold_line_breaks_and_a_row_is_where_it_begins(write):
    path = write("t.csv", 'text,label\n"one\ntwo ""2""",x\nthree,y\n')
    found = read_texts(path)
    assert [(e.text, e.place.line) for e in found] == [('one\ntwo "2"', 2), ("three", 4)]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1)


@given(st.lists(st.tuples(CELLS, st.sampled_from("xy")), min_size=1, max_size=8))
def test_csv_reads_back_what_the_standard_library_writes(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("text", "label"), *rows])
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    table = open_table(str(path))
    assert [(row["text"], row["label"]) for _, row in table.rows] == rows


def test_compressed_files_and_standard_input_are_read(tmp_path, monkeypatch):
    text = "text\tlabel\none\tx\ntwo\ty\n"
    (tmp_path / "t.tsv.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(read_texts([tmp_path / "t.tsv.xz", tmp_path / "t.tsv.gz"])) == 4
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found = read_texts("-")
    assert (found.source, str(found.examples[1].place)) == ("standard input", "standard input:3")


def test_jsonl_and_parquet_give_classes_sets_and_numbers(write, tmp_path):
    rows = [{"text": "a b", "labels": ["x", "y"]}, {"text": "c", "labels": []}, {"text": "d", "labels": ["x"]}]
    jsonl = write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for path in (jsonl, tmp_path / "t.parquet"):
        found = read_texts(path)
        assert found.kind == "multi-label"
        assert [e.label for e in found] == [("x", "y"), (), ("x",)]
    numbers = write("n.jsonl", '{"text": "a", "score": 1}\n{"text": "b", "score": 2.5}\n')
    assert [e.label for e in read_texts(numbers)] == [1.0, 2.5]
    mixed = write("m.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": "1"}\n{"text": "c", "label": true}\n')
    assert [e.label for e in read_texts(mixed)] == ["1", "1", "true"]


def test_a_separator_makes_sets_and_regression_may_be_asked_for(write):
    path = write("t.tsv", "text\tlabel\na\tx|y\nb\t\nc\ty\n")
    assert [e.label for e in read_texts(path, separator="|")] == [("x", "y"), (), ("y",)]
    stars = write("s.tsv", "text\tstars\na\t1\nb\t5\n")
    assert [e.label for e in read_texts(stars)] == ["1", "5"]
    assert [e.label for e in read_texts(stars, kind="regression")] == [1.0, 5.0]
    half = write("h.tsv", "text\tscore\na\t0\nb\t3.800\n")
    assert read_texts(half).kind == "regression"


def test_classes_are_numbered_by_size_or_alphabet(write):
    path = write("t.tsv", "text\tlabel\na\t10\nb\t9\nc\t9\n")
    assert read_texts(path).label_names() == ("9", "10")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", b"text\tlabel\none\tx\ntwo\n", r"t\.tsv:3: 1 columns, but the first row has 2"),
        ("t.tsv", b"text\tlabel\none\tx\n  \ty\n", r"t\.tsv:3: text is empty"),
        ("t.tsv", b"text\tlabel\none\tx\ntwo\t\n", r"t\.tsv:3: the label is empty \(column label\)"),
        ("t.tsv", b"text\tlabel\none\tx\ntwo\tNaN\n", r"t\.tsv:3: the label is NaN, a missing value \(column label\)"),
        ("t.tsv", b"text\tlabel\none\tx\n<NA>\ty\n", r"t\.tsv:3: text is <NA>, a missing value"),
        ("t.tsv", b"text\tlabel\none\tx\nt\xffo\ty\n", r"t\.tsv:3: byte 0xff at 2 is not UTF-8"),
        ("t.tsv", b"text\tlabel\none\tx\nt\0o\ty\n", r"t\.tsv:3: NUL byte at 2"),
        ("t.csv", b'text,label\none,x\n"two,y\nthree,x\n', r"t\.csv:3: broken quoting"),
        ("t.csv", b"text,text\none,x\n", r"t\.csv:1: two columns are named 'text'"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n{"text": \n', r"t\.jsonl:2: broken JSON"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n[1]\n', r"t\.jsonl:2: the line is no JSON object"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n{"label": "y"}\n', r"t\.jsonl:2: text is empty"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n{"text": ["b"], "label": "y"}\n', r"t\.jsonl:2: text is list"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n{"text": "b", "label": {}}\n', r"t\.jsonl:2: the label is a record"),
        ("t.parquet", b"PAR1 nothing", r"t\.parquet is no whole Parquet file"),
        ("t.tsv.xz", BROKEN, r"t\.tsv\.xz is no whole .xz file"),
        ("t.tsv", b"\n \n", r"t\.tsv is empty"),
        ("t.tsv", b"text\tlabel\n", r"t\.tsv has no rows that can be read"),
        ("t.dat", b"one two\n", r"neither its name nor its first line shows its format"),
    ],
)  # fmt: skip
def test_every_fault_has_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as fault:
        read_texts(tmp_path / name, Columns(text="text", label="label") if name == "t.jsonl" else Columns())
    assert fault.value.exit_code == 4


def test_problems_are_collected_and_the_rest_is_read(write):
    path = write("t.tsv", "text\tlabel\none\tx\ntwo\n \ty\nthree\t\nfour\ty\n")
    problems = Problems()
    assert [e.text for e in read_texts(path, problems=problems)] == ["one", "four"]
    assert dict(problems.counts) == {"wrong number of columns": 1, "empty text": 1, "no label": 1}
    assert str(problems.examples["empty text"][0].place) == f"{path}:4"


def test_where_nothing_is_left_the_first_fault_is_told(write):
    path = write("t.tsv", "text\tlabel\none\t\n")
    with pytest.raises(DataError, match=r"no row can be used \(.*t\.tsv:2: the label is empty \(column label\)\)"):
        read_texts(path, problems=Problems())
    with pytest.raises(DataError, match=r"has no rows that can be read \(.*t\.jsonl:1: broken JSON"):
        read_texts(write("t.jsonl", "{\n"), problems=Problems())
    with pytest.raises(UsageError, match="the separator of labels is empty"):
        read_texts(path, separator="")


def test_regression_names_the_label_that_is_no_number(write):
    path = write("t.tsv", "text\tlabel\none\t1.5\ntwo\tnan\n")
    with pytest.raises(DataError, match=r"t\.tsv:3: the label is nan, a missing value"):
        read_texts(path, kind="regression")


def test_a_text_of_a_million_characters_is_read_from_every_format(write, tmp_path):
    long = "word " * 200_000
    row = {"text": long, "label": "x"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    for path in (
        write("t.csv", f'text,label\n"{long}",x\n'),
        write("t.tsv", f"text\tlabel\n{long}\tx\n"),
        write("t.jsonl", json.dumps(row) + "\n"),
        tmp_path / "t.parquet",
    ):
        assert len(read_texts(path).examples[0].text) == 1_000_000


def test_columns_of_objects_in_parquet_are_not_opened(tmp_path):
    table = pa.table({"text": ["a", "b"], "label": ["x", "y"], "blob": pa.array([b"\x80\x04", b""], pa.binary())})
    pq.write_table(table, tmp_path / "t.parquet")
    assert open_table(str(tmp_path / "t.parquet")).columns == ("text", "label")
    with pytest.raises(DataError, match="no column 'blob'"):
        read_texts(tmp_path / "t.parquet", Columns(text="blob"))


def test_classes_that_a_file_names_in_its_metadata_get_their_names(tmp_path):
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["bad", "good"], "_type": "ClassLabel"},
        "ner_tags": {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "Sequence"},
    }
    rows = {"text": ["a", "b"], "label": [1, 0], "tokens": [["c", "d"], ["e"]], "ner_tags": [[0, 1], [0]]}
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(rows).replace_schema_metadata(told), tmp_path / "t.parquet")
    assert [e.label for e in read_texts(tmp_path / "t.parquet")] == ["good", "bad"]
    assert [e.tags for e in read_tagged(tmp_path / "t.parquet")] == [("O", "B-X"), ("O",)]
    pq.write_table(pa.table(rows).replace_schema_metadata({"huggingface": "[1"}), tmp_path / "u.parquet")
    assert [e.label for e in read_texts(tmp_path / "u.parquet", Columns(label="label"))] == ["1", "0"]


def test_an_unnamed_index_as_pandas_writes_it_is_no_trouble(write):
    found = read_texts(write("t.csv", ",text,label\n0,one,x\n1,two,y\n"))
    assert [(e.text, e.label) for e in found] == [("one", "x"), ("two", "y")]


def test_without_labels_only_texts_are_read(write):
    found = read_texts(write("t.tsv", "text\none\ntwo\n"), labelled=False)
    assert ([e.label for e in found], found.kind) == ([None, None], None)
