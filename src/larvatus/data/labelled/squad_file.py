"""SQuAD's files whole: JSON read and written under any compression, and the predictions that official scorers read.

write_squad(Path("dev.json.xz"), dev.examples)
write_predictions(Path("predictions.json"), {"56be…": "Denver Broncos"})
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from larvatus.core.errors import DataError
from larvatus.core.outputs import new_output
from larvatus.data.labelled.records import QuestionExample, shown
from larvatus.data.text.archives import BROKEN
from larvatus.data.text.streams import HINT, as_utf_8
from larvatus.data.text.records import LONGEST_LINE, open_bytes

MOST = 8 * LONGEST_LINE
"""Bytes of a file that is read whole."""
PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


def read_whole(name: str) -> bytes:
    """A file, decompressed by its suffix."""
    with open_bytes(name) as stream:
        try:
            content = as_utf_8(stream, shown(name)).read(MOST + 1)
        except BROKEN as broken:
            raise DataError(f"{shown(name)} breaks off ({broken}); fetch it again") from broken
    if len(content) > MOST:
        raise DataError(f"{shown(name)} has more than {MOST:,} bytes; cut it, or write rows of JSONL")
    try:
        content.decode()
    except UnicodeDecodeError as bad:
        line = content.count(b"\n", 0, bad.start) + 1
        where = f"{shown(name)}:{line}: byte 0x{content[bad.start]:02x} is not UTF-8"
        raise DataError(f"{where}; repair it, or name its encoding: {HINT}") from bad
    return content.removeprefix(b"\xef\xbb\xbf")


def squad_document(examples: Iterable[QuestionExample]) -> dict[str, Any]:
    """SQuAD's JSON: version 2 where a question cannot be answered, else 1.1. Neighbours share articles and passages."""
    given = list(examples)
    second = any(example.impossible for example in given)
    articles = []
    for title, titled in groupby(given, key=lambda example: example.title):
        paragraphs = []
        for passage, asked in groupby(titled, key=lambda example: example.passage):
            paragraphs.append({"context": passage, "qas": [_asked(example, second) for example in asked]})
        articles.append({"paragraphs": paragraphs} | ({} if title is None else {"title": title}))
    return {"version": "v2.0" if second else "1.1", "data": articles}


def _asked(example: QuestionExample, second: bool) -> dict[str, Any]:
    answers = [{"text": text, "answer_start": start} for text, start in example.answers]
    return {"id": example.id, "question": example.question, "answers": answers} | (
        {"is_impossible": example.impossible} if second else {}
    )


def write_squad(path: Path, examples: Iterable[QuestionExample]) -> None:
    """Questions as SQuAD's JSON, compressed by the suffix."""
    _write(path, squad_document(examples))


def write_predictions(path: Path, answers: Mapping[str, str]) -> None:
    """The answer to each question by its id, empty for none: what official scorers read."""
    _write(path, dict(answers))


def _write(path: Path, value: Any) -> None:
    content = (json.dumps(value, ensure_ascii=False) + "\n").encode()
    with new_output(path, len(content)) as aside:
        aside.write_bytes(PACKED.get(path.suffix.lower(), bytes)(content))


def read_predictions(name: str) -> dict[str, str]:
    """A prediction file: one JSON object of ids and texts."""
    try:
        predictions: dict[str, str] = msgspec.json.decode(read_whole(name), type=dict[str, str])
    except (ValueError, RecursionError) as broken:
        raise DataError(f'{shown(name)} is no prediction file ({broken}); write {{"id": "text", …}}') from broken
    return predictions
