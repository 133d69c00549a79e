"""Readers: every format and archive gives the same documents; a fault has a place and a name (FAULTS 20, 22, 26)."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.readers import Document, ReadOptions, Skipped, list_files, read_documents
from tests.patience import assert_linear

DOCUMENTS = ["First line\nsecond line", "Über 中文 😀", "last"]
PLAIN = "\n\nFirst line\nsecond line\n \t\n\nÜber 中文 😀\n\nlast\n"
SKIP = ReadOptions(on_bad="skip")


def texts(*paths, **settings) -> list[str]:
    return [document.text for document in read_documents(paths, options=ReadOptions(**settings))]


def test_plain_text_by_blank_lines_or_by_files(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode())
    found = list(read_documents([path], options=ReadOptions(language="de")))
    assert [document.text for document in found] == DOCUMENTS
    assert found[0] == Document(DOCUMENTS[0], str(path), 3, "de", start=2)
    assert [document.line for document in found] == [3, 7, 9]
    assert texts(path, split="file") == ["First line\nsecond line\n \t\n\nÜber 中文 😀\n\nlast"]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".zst", zstandard.compress), ("", bytes)],
)
def test_archives(tmp_path, suffix, pack):
    (tmp_path / f"a.txt{suffix}").write_bytes(pack(PLAIN.encode()))
    records = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS)
    (tmp_path / f"b.jsonl{suffix}").write_bytes(pack(records.encode()))
    assert texts(tmp_path) == DOCUMENTS + DOCUMENTS


def test_a_broken_archive_names_its_place(tmp_path):
    lines = b"a line of some length\n\n" * 20_000
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a.txt{suffix}"
        whole = pack(lines)
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=rf"a\.txt{suffix} is no whole {suffix} file: it breaks off"):
            texts(path)
        with pytest.raises(DataError, match="it breaks off"):
            list(read_documents([path], options=SKIP))


def test_jsonl_fields_and_languages(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_text('{"body": "eins", "lang": "de"}\n\n{"body": "two"}\n', encoding="utf-8")
    options = ReadOptions(text_field="body", language_field="lang", language="en")
    assert [(d.text, d.line, d.language) for d in read_documents([path], options=options)] == [
        ("eins", 1, "de"),
        ("two", 3, "en"),
    ]


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("a.txt", b"caf\xe9", "bad UTF-8"),
        ("a.txt", b"\xed\xa0\x80", "bad UTF-8"),
        ("a.txt", b"a\0b", "NUL byte"),
        ("a.jsonl", b'{"text": "caf\xe9"}', "bad UTF-8"),
        ("a.jsonl", b'{"text": "a\\u0000b"}', "NUL byte"),
        ("a.jsonl", b'{"text": "a\\ud800b"}', "lone surrogate"),
        ("a.jsonl", b'{"text": "cut off', "broken JSON"),
        ("a.jsonl", b"[" * 100_000, "broken JSON"),
        ("a.jsonl", b'["text"]', "not an object"),
        ("a.jsonl", b'{"txt": "a"}', "missing text"),
        ("a.jsonl", b'{"text": 7}', "text is no string"),
    ],
)
def test_what_is_no_text_names_file_and_line_or_is_counted(tmp_path, name, bad, reason):
    good = [b"good", b"end"] if name == "a.txt" else [b'{"text": "good"}', b'{"text": "end"}']
    path = tmp_path / name
    path.write_bytes(b"\n\n".join([good[0], bad, good[1]]))
    with pytest.raises(DataError, match=rf"{name}:3: .*--on-bad skip"):
        texts(path)
    skipped = Skipped()
    found = [document.text for document in read_documents([path], options=SKIP, skipped=skipped)]
    assert found == ["good", "end"]
    assert skipped.bad == {reason: 1}
    assert skipped.total == 1
    assert f"{name}:3: " in skipped.examples[0]
    assert reason in str(skipped)


def test_a_bad_line_does_not_end_its_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\n")
    skipped = Skipped()
    assert [d.text for d in read_documents([tmp_path], options=SKIP, skipped=skipped)] == ["one\ntwo"]


def test_parquet_by_batches(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [f"document {number}" for number in range(3000)]
    pq.write_table(pa.table({"text": rows, "lang": ["en"] * 3000, "other": range(3000)}), path, row_group_size=1000)
    found = list(read_documents([path], options=ReadOptions(language_field="lang")))
    assert [document.text for document in found] == rows
    assert (found[2500].line, found[2500].language) == (2501, "en")
    pq.write_table(pa.table({"text": pa.array(rows).dictionary_encode()}), path)
    assert texts(path) == rows


def test_parquet_faults(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None, "b"]}), path)
    skipped = Skipped()
    assert [(d.text, d.line) for d in read_documents([path], skipped=skipped)] == [("a", 1), ("b", 3)]
    assert skipped.blank == 1
    with pytest.raises(UsageError, match=r"a\.parquet has no column 'body' \(it has text\)"):
        texts(path, text_field="body")
    raw = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    pq.write_table(pa.table({"text": raw}), path)
    with pytest.raises(DataError, match=r"a\.parquet:1: the text is not UTF-8"):
        texts(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="no whole Parquet file"):
        texts(path)


def test_a_pickled_column_is_refused(tmp_path):
    """FAULTS 26."""
    import pickle

    path = tmp_path / "a.parquet"
    evil = pickle.dumps({"text": "hello"})
    for column in (pa.array([evil]), pa.array([[1, 2]]), pa.array([{"x": "a"}])):
        pq.write_table(pa.table({"text": column}), path)
        with pytest.raises(DataError, match="not strings; nothing else is opened"):
            texts(path)


def test_directories_globs_and_order(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a.txt", "c.jsonl", "notes.docx", "Makefile", ".hidden.txt", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": name}) if name.endswith("jsonl") else name)
    skipped = Skipped()
    assert [d.text for d in read_documents([tmp_path], skipped=skipped)] == ["a.txt", "b/1.txt", "b/2.txt", "c.jsonl"]
    assert skipped.ignored == {".docx": 1, "suffixless": 1}
    assert texts(tmp_path / "**" / "*.txt") == ["a.txt", "b/1.txt", "b/2.txt"]
    assert texts(tmp_path / "notes.docx") == ["notes.docx"]  # named outright: read as plain text
    assert list_files([tmp_path / "a.txt", tmp_path]) == list_files([tmp_path / "a.txt", *list_files([tmp_path])])
    assert texts(f"file://{tmp_path}/b") == ["b/1.txt", "b/2.txt"]
    assert texts(f"file://{tmp_path}/b/*.txt") == ["b/1.txt", "b/2.txt"]
    assert texts(f"file://{tmp_path}/a.txt") == ["a.txt"]


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "none.txt", "does not exist"),
        (tmp_path / "*.txt", "matches no file"),
        (tmp_path / "empty", "holds no text"),
        ("", "an empty path"),
        ("nosuchprotocol://x/y", "cannot be opened"),
        (f"file://{tmp_path}/none.txt", "does not exist"),
    ):
        with pytest.raises(DataError, match=message):
            texts(path)
    with pytest.raises(DataError, match="no text was named"):
        texts()


def test_blank_documents_are_counted_not_given(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n\t\n")
    (tmp_path / "b.jsonl").write_text('{"text": ""}\n{"text": " \\n"}\n{"text": "x"}\n')
    skipped = Skipped()
    assert [document.text for document in read_documents([tmp_path], skipped=skipped)] == ["x"]
    assert skipped.blank == 2
    other = Skipped()
    other.update(skipped)
    assert str(other) == "2 blank documents"
    assert str(Skipped()) == "nothing skipped"


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN.encode())))
    assert texts("-") == DOCUMENTS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "x"}\n')))
    assert texts("-", format="jsonl") == ["x"]


def test_ten_megabytes_without_a_break_take_linear_time(tmp_path):
    def read(size: int) -> None:
        (tmp_path / "a.txt").write_bytes(b"a" * size)
        (tmp_path / "b.jsonl").write_bytes(b'{"text": "' + b"a" * size + b'"}')
        for name in ("a.txt", "b.jsonl"):
            assert [len(text) for text in texts(tmp_path / name)] == [size]

    assert_linear(read, 1_250_000)


def test_endless_lines_and_documents_are_bounded(tmp_path, monkeypatch):
    from larvatus.data.text import records

    monkeypatch.setattr(records, "LONGEST_LINE", 100)
    monkeypatch.setattr(records, "LONGEST_DOCUMENT", 50)
    path = tmp_path / "a.txt"
    path.write_text("word\n" * 30)
    parts = texts(path)
    assert "\n".join(parts) == "\n".join(["word"] * 30)
    assert max(map(len, parts)) < 60
    path.write_text("ok\n\n" + "x" * 101)
    with pytest.raises(DataError, match=r"a\.txt:3: the line has more than 100 bytes"):
        texts(path)


@pytest.mark.parametrize("language", ["..", "a/b", "l0", "x" * 5000, "\n"])
def test_a_language_that_is_no_code_is_named_with_its_place(tmp_path, language):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "fine"}) + "\n" + json.dumps({"text": "a", "lang": language}) + "\n")
    with pytest.raises(DataError, match=r"a.jsonl:2: field 'lang': .* is no language code"):
        list(read_documents([path], options=ReadOptions(language_field="lang")))
    skipped = Skipped()
    options = ReadOptions(language_field="lang", on_bad="skip")
    assert [d.text for d in read_documents([path], options=options, skipped=skipped)] == ["fine"]
    assert skipped.bad == {"no language code": 1}
