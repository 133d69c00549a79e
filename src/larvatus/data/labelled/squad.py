"""Questions about passages: SQuAD's JSON of versions 1.1 and 2, rows of JSONL or Parquet; predictions for its scorers.

    train = read_questions("train-v1.1.json.xz")
    dev = read_questions("questions.jsonl", labelled=False)    # {"question": …, "context": …, "answers": […]}
    write_squad(Path("dev.json.xz"), dev.examples)
    write_predictions(Path("predictions.json"), {"56be…": "Denver Broncos"})

An answer is a text and the character of the passage that it begins at (Rajpurkar et al. 2016); where the two do not
agree, the error names the file and the question, since offsets that are wrong once are wrong elsewhere. A row's answer
needs no place if it occurs in the passage once. An empty answer is withheld by the file: such questions can be
answered, but neither trained on nor scored. Ids that several questions share, as in TyDiQA, are numbered (``12``,
``12#2``), so that every question has its own answer in a prediction file.
"""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import json
import lzma
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from larvatus.core.errors import DataError
from larvatus.core.outputs import new_output
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, Place, QuestionExample, QuestionPlace, source_name
from larvatus.data.labelled.tables import Paths, TableOptions, ending, open_table, path_strings
from larvatus.data.labelled.texts import BadCell, cell_text
from larvatus.data.text.streams import LONGEST_LINE, read_whole

MOST = 8 * LONGEST_LINE
"""Bytes of a file that is read whole."""
PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


TABLES = (".jsonl", ".ndjson", ".parquet")
PASSAGES = ("context", "passage", "document", "text")
STARTS = ("answer_start", "start")


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


class BadAnswer(Exception):
    """Answers that cannot be used: the kind they are counted under, and what to say."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_questions(
    paths: Paths, *, labelled: bool = True, problems: Problems | None = None
) -> Dataset[QuestionExample]:
    """Questions with their passages and answers, from SQuAD's JSON, or rows of JSONL or Parquet.

    Without `labelled` no answers are wanted, and those that are there are read all the same. What cannot be used is a
    fault: raised, or collected in `problems`.
    """
    names = path_strings(paths)
    examples: list[QuestionExample] = []
    for name in names:
        examples += _rows(name, problems) if ending(name) in TABLES else _file(name, problems)
    source = ", ".join(source_name(name) for name in names)
    if labelled:
        kept = [example for example in examples if example.known]
        if examples and not kept:
            raise DataError(
                f"{source}: not one of {len(examples):,} questions comes with its answer (the texts are empty), so "
                "they can be answered, but not trained on or scored"
            )
        for example in examples:
            if not example.known:
                fault(
                    problems, "no answer", example.place, "its answer is not given; drop it, or mark it is_impossible"
                )
        examples = kept
    if not examples:
        raise DataError(f"{source}: no question can be used{cause(problems)}; give questions with their passages")
    return with_unique_ids(Dataset(tuple(examples), source, _said(examples), notes=_notes(examples)))


def _said(examples: list[QuestionExample]) -> str:
    passages = len({example.passage for example in examples})
    none = sum(example.impossible for example in examples)
    said = f"read as: questions about {passages:,} passages"
    return f"{said}, {none:,} of them without an answer" if none else said


def _notes(examples: list[QuestionExample]) -> tuple[str, ...]:
    hidden = sum(not example.known for example in examples)
    return (f"{hidden:,} questions come without their answers",) if hidden else ()


# ── SQuAD's JSON


def _file(name: str, problems: Problems | None) -> Iterator[QuestionExample]:
    content = read_whole(name, most=MOST, way="cut it, or write rows of JSONL").removeprefix(b"\xef\xbb\xbf")
    try:
        document = msgspec.json.decode(content)
    except (ValueError, RecursionError) as broken:
        first = content.lstrip().partition(b"\n")[0].strip()
        if first.startswith(b"{") and first.endswith(b"}"):  # one object a line, whatever the file is called
            yield from _rows(name, problems)
            return
        raise DataError(f"{source_name(name)} is no JSON: {broken}") from broken
    if isinstance(document, dict) and "data" not in document and "question" in document:
        yield from _rows(name, problems)
        return
    number = 0
    for article in _list(document, "data", source_name(name)):
        title = article.get("title") if isinstance(article, dict) else None
        for paragraph in _list(article, "paragraphs", source_name(name)):
            passage = paragraph.get("context") if isinstance(paragraph, dict) else None
            for asked in _list(paragraph, "qas", source_name(name)):
                number += 1
                identifier = asked.get("id") if isinstance(asked, dict) else None
                place = QuestionPlace(
                    source_name(name), number, str(identifier) if identifier not in (None, "") else f"number {number}"
                )
                if not isinstance(asked, dict) or identifier in (None, ""):
                    fault(problems, "no id", place, "it has no id; give each question one")
                    continue
                row = {**asked, "context": passage}
                example = _example(row, str(identifier), title if isinstance(title, str) else None, place, problems)
                if example is not None:
                    yield example


def _list(value: Any, key: str, source: str) -> list[Any]:
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise DataError(
            f"{source} is not SQuAD's JSON: there is no list {key!r} where one belongs; "
            'write {"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}, or rows as .jsonl'
        )
    return items


# ── rows


def _rows(name: str, problems: Problems | None) -> Iterator[QuestionExample]:
    format = None if ending(name) in TABLES else "jsonl"
    table = open_table(name, TableOptions(format=format), problems)  # type: ignore[arg-type]
    passage = next((column for column in PASSAGES if column in table.columns), None)
    if passage is None or "question" not in table.columns:
        raise DataError(f"{table.name} has {', '.join(table.columns)}; write question, context and answers in each row")
    for place, row in table.rows:
        identifier, title = row.get("id"), row.get("title")
        example = _example(
            {**row, "context": row.get(passage)},
            str(place.line) if identifier in (None, "") else str(identifier),
            title if isinstance(title, str) else None,
            place,
            problems,
        )
        if example is not None:
            yield example


def _example(
    row: dict[str, Any], identifier: str, title: str | None, place: Place, problems: Problems | None
) -> QuestionExample | None:
    try:
        question, passage = cell_text(row, "question"), cell_text(row, "context")
        answers = tuple(_answers(row.get("answers", row.get("answer")), passage))
        impossible = row.get("is_impossible") is True
        if impossible and answers:
            raise BadAnswer("answer to the impossible", "it is_impossible, and yet has an answer; drop one of the two")
    except (BadCell, BadAnswer) as bad:
        fault(problems, bad.kind, place, str(bad))
        return None
    return QuestionExample(identifier, question, passage, answers, impossible, title, place)


def _answers(given: Any, passage: str) -> Iterator[tuple[str, int]]:
    """Answers in any of their shapes; empty ones are left out."""
    for text, start in _pairs(given):
        if not isinstance(text, str) or (start is not None and (isinstance(start, bool) or not isinstance(start, int))):
            raise BadAnswer("broken answer", f"its answer is {text!r:.60} at {start!r:.20}, not a text and a character")
        if text.strip():
            yield text, _located(text, start, passage)


def _pairs(given: Any) -> Iterator[tuple[Any, Any]]:
    if given is None:
        return
    if isinstance(given, dict) and isinstance(given.get("text"), list):  # the columns of `datasets`
        texts = given["text"]
        starts = next((given[key] for key in STARTS if isinstance(given.get(key), list)), [None] * len(texts))
        if len(texts) != len(starts):
            raise BadAnswer("broken answer", f"{len(texts)} answers but {len(starts)} places")
        yield from zip(texts, starts, strict=True)
        return
    for answer in given if isinstance(given, list) else [given]:
        if isinstance(answer, dict):
            yield answer.get("text"), next((answer[key] for key in STARTS if key in answer), None)
        else:
            yield answer, None


def _located(text: str, start: int | None, passage: str) -> int:
    if start is not None and start >= 0 and passage.startswith(text, start):
        return start
    places = list(_occurrences(text, passage))
    if start is None:
        if len(places) == 1:
            return places[0]
        times = f"{len(places)} times" if places else "nowhere"
        raise BadAnswer(
            "answer without a place", f"its answer {text!r:.60} occurs {times} in the passage; give answer_start"
        )
    there = passage[max(0, start) : max(0, start) + len(text)]
    near = min(places, key=lambda place: abs(place - start)) if places else None
    way = "and nowhere in the passage" if near is None else f"it is at {near}"
    raise BadAnswer(
        "answer out of place", f"its answer {text!r:.60} is not at character {start} ({there!r:.60}); {way}"
    )


def _occurrences(text: str, passage: str) -> Iterator[int]:
    at = passage.find(text)
    while at >= 0:
        yield at
        at = passage.find(text, at + 1)


def with_unique_ids(data: Dataset[QuestionExample]) -> Dataset[QuestionExample]:
    """Ids that are given twice get a number, so that predictions can be distinguished: ``12``, ``12#2``, ``12#3``."""
    counts = Counter(example.id for example in data)
    if len(counts) == len(data):
        return data
    taken, seen = set(counts), Counter[str]()
    made, numbered = [], []
    for example in data:
        seen[example.id] += 1
        identifier = example.id if seen[example.id] == 1 else unique_id(example.id, taken, seen[example.id])
        taken.add(identifier)
        made.append(example if identifier == example.id else dataclasses.replace(example, id=identifier))
        numbered += [identifier] if identifier != example.id else []
    twice = sum(count > 1 for count in counts.values())
    said = f"{twice:,} {'id is' if twice == 1 else 'ids are'} given to more than one question"
    note = f"{said}: the later ones are numbered, such as {numbered[0]}"
    return dataclasses.replace(data, examples=tuple(made), notes=(*data.notes, note))


def unique_id(identifier: str, taken: Container[str], number: int = 2) -> str:
    """An id with a number, from this one on, that is not taken.

    >>> unique_id("12", {"12", "12#2"})
    '12#3'
    """
    while f"{identifier}#{number}" in taken:
        number += 1
    return f"{identifier}#{number}"
