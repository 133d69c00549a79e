"""Row 22: bad UTF-8, NUL and half surrogates are named by file and line, by every reader and by commands; a word of
megabytes takes time in proportion to its length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tagged import read_spanned, read_spans, read_tagged
from larvatus.data.labelled.texts import read_texts, read_unlabelled
from larvatus.data.text.readers import ReadOptions, Skipped, read_documents
from larvatus.data.text.streams import numbered_lines
from larvatus.evaluation.compare.minimal_pairs import read_pairs
from larvatus.models.heads import ClassificationConfig

Reader = Callable[[str], Any]
BYTES = {"bad UTF-8": b"bad \xff byte", "NUL": b"nul \0 byte", "half a surrogate": b"half \xed\xa0\x80 pair"}
ESCAPED = {**BYTES, "escaped NUL": rb"nul \u0000 byte", "escaped half": rb"half \ud800 pair", "low half": rb"\udfff"}


def documents(name: str) -> list[Any]:
    return list(read_documents([name]))


def unlabelled(name: str) -> list[Any]:
    return list(read_unlabelled(name, words=False, say=lambda _: None))


CONLLU = b"1\tgood" + b"\t_" * 7 + b"\tEntity=(1-x-new)\n2\t%s" + b"\t_" * 8 + b"\n\n"
LINES: dict[str, tuple[str, bytes, int, Reader]] = {
    "text": ("a.txt", b"good\n%s\n", 2, documents),
    "csv": ("a.csv", b"text,label\ngood,yes\n%s,no\nfine,yes\n", 3, read_texts),
    "csv label": ("a.csv", b"text,label\ngood,yes\nfine,%s\n", 3, read_texts),
    "tsv": ("a.tsv", b"text\tlabel\ngood\tyes\n%s\tno\nfine\tyes\n", 3, read_texts),
    "conll": ("a.conll", b"good\tO\n%s\tO\n\n", 2, read_tagged),
    "conll tag": ("a.conll", b"good\tO\nfine\t%s\n\n", 2, read_tagged),
    "conllu": ("a.conllu", CONLLU, 2, read_spanned),
    "pairs": ("a.tsv", b"good\tbad\nx %s\ty\n", 2, lambda name: read_pairs([name])),
    "to predict": ("a.txt", b"good\n%s\n", 2, unlabelled),
    "lines": ("a.txt", b"good\n%s\n", 2, lambda name: list(numbered_lines(name))),
}
SQUAD = (
    b'{"data": [{"title": "t", "paragraphs": [\n{"context": "%s", "qas": [{"id": "1", "question": "%s", '
    b'"answers": [{"text": "t", "answer_start": 0}]}]}]}]}'
)
RECORDS: dict[str, tuple[str, bytes, str, Reader]] = {
    "records": ("a.jsonl", b'{"text": "good"}\n{"text": "%s"}\n', ":2:", documents),
    "labelled": ("a.jsonl", b'{"text": "a", "label": "x"}\n{"text": "%s", "label": "y"}\n', ":2:", read_texts),
    "labels": ("a.jsonl", b'{"text": "a", "label": "x"}\n{"text": "b", "label": "%s"}\n', ":2:", read_texts),
    "words": (
        "a.jsonl", b'{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["b", "%s"], "tags": ["O", "O"]}\n', ":2:",
        read_tagged,
    ),
    "spans": (
        "a.jsonl", b'{"text": "a", "spans": [[0, 1, "X"]]}\n{"text": "b %s", "spans": [[0, 1, "X"]]}\n', ":2:",
        read_spans,
    ),
    "pairs": (
        "a.jsonl", b'{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "%s", "sentence_bad": "b"}\n',
        ":2:", lambda name: read_pairs([name]),
    ),
    "to predict": ("a.jsonl", b'{"text": "good"}\n{"text": "%s"}\n', ":2:", unlabelled),
    "passages": ("a.json", SQUAD % (b"t %s", b"what?"), "", read_questions),
    "questions": ("a.json", SQUAD % (b"the river", b"%s"), "", read_questions),
}  # fmt: skip


@pytest.mark.parametrize("reader", LINES)
@pytest.mark.parametrize("fault", BYTES)
def test_22_bad_bytes_are_named_by_file_and_line(reader: str, fault: str, tmp_path: Path) -> None:
    name, lines, line, read = LINES[reader]
    word = BYTES[fault].replace(b" ", b"_")
    (tmp_path / name).write_bytes(lines.replace(b"%s", word))
    with pytest.raises(DataError, match=rf"{name}:{line}: .*(NUL|is not UTF-8)"):
        read(str(tmp_path / name))


@pytest.mark.parametrize("reader", RECORDS)
@pytest.mark.parametrize("fault", ESCAPED)
def test_22_bad_records_are_named_by_file_and_line(reader: str, fault: str, tmp_path: Path) -> None:
    name, lines, line, read = RECORDS[reader]
    (tmp_path / name).write_bytes(lines.replace(b"%s", ESCAPED[fault]))
    with pytest.raises(DataError, match=rf"{name}{line}.*(NUL|is not UTF-8|surrogate|invalid character|malformed)"):
        read(str(tmp_path / name))


@pytest.mark.parametrize("read", [documents, read_texts])
@pytest.mark.parametrize("fault", BYTES)
def test_22_bad_rows_of_parquet_are_named(read: Reader, fault: str, tmp_path: Path) -> None:
    values = pa.array([b"good", BYTES[fault], b"fine"], pa.binary())
    _, offsets, held = values.buffers()
    text = pa.StringArray.from_buffers(3, offsets, held)
    pq.write_table(pa.table({"text": text, "label": ["a", "b", "a"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet:2: .*(NUL|is not UTF-8)"):
        read(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("kind", ["text", "records"])
@pytest.mark.parametrize("fault", BYTES)
def test_22_they_are_skipped_and_counted_when_asked(kind: str, fault: str, tmp_path: Path) -> None:
    name, lines, *_ = LINES["text"] if kind == "text" else RECORDS["records"]
    (tmp_path / name).write_bytes(lines.replace(b"%s", BYTES[fault]) + (b"" if kind == "text" else b'{"text": "on"}\n'))
    skipped = Skipped()
    found = [one.text for one in read_documents([tmp_path / name], options=ReadOptions(on_bad="skip"), skipped=skipped)]
    assert found == (["good"] if kind == "text" else ["good", "on"])
    assert skipped.total == 1


COMMANDS: dict[str, list[object]] = {
    "corpus build": ["corpus", "build", "TEXT", "--tokenizer", "MODEL", "--out", "c", "--workers", 1],
    "tokenizer train": ["tokenizer", "train", "TEXT", "--size", 50, "--out", "v"],
    "embed": ["embed", "TEXT", "--model", "MODEL", "--out", "v.npy"],
    "score": ["score", "--file", "TEXT", "--model", "MODEL"],
    "map": ["map", "good", "--model", "MODEL", "--corpus", "TEXT", "--json"],
    "isotropy": ["isotropy", "show", "--model", "MODEL", "--corpus", "TEXT"],
    "attention": ["attention", "--model", "MODEL", "--corpus", "TEXT"],
    "similar": ["similar", "index", "TEXT", "--model", "MODEL", "--word", "good", "--out", "i"],
    "predict": ["predict", "TUNED", "--file", "TEXT", "--out", "p.jsonl"],
    "data check": ["data", "check", "TABLE"],
    "finetune": ["finetune", "classify", "--model", "MODEL", "--train", "TABLE", "--out", "f"],
    "evaluate": ["evaluate", "TUNED", "--data", "TABLE"],
}


@pytest.fixture(scope="module")
def tuned(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    head = ClassificationConfig(labels=("no", "yes"))
    path: Path = save_tiny(tmp_path_factory.mktemp("tuned") / "m", tiny_model(objectives=(head,)), (head,))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_22_commands_name_the_line(
    command: str, larvatus: Any, tiny_directory: Path, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in (BYTES["bad UTF-8"], BYTES["NUL"]):
        (tmp_path / "t.txt").write_bytes(b"good good\n%s\n" % word)
        (tmp_path / "t.csv").write_bytes(b"text,label\n%s,no\n" % word)
        names = {"MODEL": tiny_directory, "TUNED": tuned, "TEXT": "t.txt", "TABLE": "t.csv"}
        code, said = larvatus(*(names.get(str(one), one) for one in COMMANDS[command]))
        assert code == 4, said
        assert "t.txt:2:" in said or "t.csv:2:" in said, said
    assert not (tmp_path / "p.jsonl").exists()
    assert not (tmp_path / "v.npy").exists()


def seconds(work: Callable[[], Any]) -> float:
    """The less of two: what else the machine does only adds to it."""
    least = float("inf")
    for _ in range(2):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least


LONG: dict[str, tuple[str, str, Reader]] = {
    "text": ("a.txt", "{}\n", documents),
    "lines": ("a.txt", "{}\n", lambda name: list(numbered_lines(name))),
    "records": ("a.jsonl", '{{"text": "{}"}}\n', documents),
    "spread records": ("a.jsonl", '[{{"text":\n"{}"}}]\n', documents),
    "csv": ("a.csv", "text,label\n{},yes\nb,no\n", read_texts),
    "quoted csv": ("a.csv", 'text,label\n"{}",yes\nb,no\n', read_texts),
    "tsv": ("a.tsv", "text\tlabel\n{}\tyes\nb\tno\n", read_texts),
    "conll": ("a.conll", "{}\tO\n\n", read_tagged),
    "questions": ("a.json", json.dumps({"data": [{"paragraphs": [{"context": "{}", "qas": [{
        "id": "1", "question": "q", "answers": [{"text": "x", "answer_start": 0}]}]}]}]}
    ).replace("{", "{{").replace("}", "}}").replace("{{}}", "{}"), read_questions),
}  # fmt: skip


@pytest.mark.parametrize("reader", LONG)
def test_22_a_word_of_megabytes_takes_time_in_proportion(reader: str, tmp_path: Path) -> None:
    """Eight times the letters may take sixteen times as long, not sixty-four."""
    name, shape, read = LONG[reader]
    taken = []
    for size in (1_000_000, 8_000_000):
        (tmp_path / name).write_text(shape.format("x" * size))
        taken.append(seconds(lambda: read(str(tmp_path / name))))
    assert taken[1] < 16 * max(taken[0], 0.01), taken


@pytest.mark.parametrize("letter", ["x", "é", "山", "́", "'"])
def test_22_tokenizers_take_time_in_proportion(letter: str, tiny_tokenizer: Any) -> None:
    taken = [seconds(lambda size=size: tiny_tokenizer.encode(letter * size)) for size in (10_000, 40_000)]
    assert taken[1] < 8 * max(taken[0], 0.005), taken  # quadratic: sixteen times
