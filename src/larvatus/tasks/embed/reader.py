"""Texts that belong together from CSV, TSV, JSONL and Parquet, and plain text from files of lines.

    train = read_sentences("faq.tsv")
    print(train.describe())                # … read as: pairs, anchor = question, positive = answer

A file that is no table (`.txt`, by its name) has a text a line. Empty texts and scores that are no numbers are faults:
raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place, Row, source_name
from larvatus.data.labelled.tables import ENDINGS, ending, open_table
from larvatus.data.labelled.texts import BadCell, cell_text, present_text, several_texts
from larvatus.data.text.columns import is_number
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.embed.columns import SentenceColumns, SentenceFiles, sentence_columns
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.tables import read_files, row_id, valid_rows


def read_sentences(
    paths: Paths, files: SentenceFiles = SentenceFiles(), *, problems: Problems | None = None
) -> Dataset[SentenceExample]:
    """Examples from one file or several; all must hold the same kind of rows."""
    kinds: dict[str, str] = {}

    def read_file(path: str) -> tuple[str, str, Iterator[SentenceExample]]:
        if _is_plain(path, files):
            kinds.setdefault("texts", source_name(path))
            return source_name(path), "texts, a text a line", _lines(path)
        table = open_table(path, files.table, problems)
        columns = sentence_columns(table, files)
        kinds.setdefault(columns.rows, table.name)
        return table.name, columns.describe(), valid_rows(table, columns, examples_of, problems)

    examples, source, read_as = read_files(paths, read_file, give="give texts", problems=problems)
    if len(kinds) > 1:
        (first, where), (second, other) = list(kinds.items())[:2]
        raise DataError(f"{where} holds {first}, but {other} holds {second}; give files of one kind, or --rows")
    return Dataset(tuple(examples), source, read_as)


def _is_plain(path: str, files: SentenceFiles) -> bool:
    named = (files.text, files.pair, files.score, files.member, *files.negative)
    return path != "-" and ending(path) not in ENDINGS and not any(named) and files.rows in (None, "texts")


def _lines(path: str) -> Iterator[SentenceExample]:
    for number, line in numbered_lines(path):
        if line.strip():
            place = Place(source_name(path), number)
            try:
                yield SentenceExample((cell_text({"the line": line}, "the line"),), "texts", place)
            except BadCell as bad:
                raise DataError(f"{place}: {bad}") from bad


def examples_of(row: Row, columns: SentenceColumns, place: Place) -> list[SentenceExample]:
    """The examples of a row: one, or where a row is a group, one for each of its texts."""
    if not columns.members:
        return [example_of(row, columns, place)]
    texts = [text for name in columns.members for text in several_texts(row, name)]
    return [SentenceExample((text,), "groups", place, group=str(place)) for text in dict.fromkeys(texts)]


def example_of(row: Row, columns: SentenceColumns, place: Place) -> SentenceExample:
    """One example from a row; `BadCell` where it is none."""
    texts = [present_text(row, name) for name in (columns.text, columns.pair) if name is not None]
    for name in columns.negatives:
        texts += several_texts(row, name)
    if columns.rows == "triplets" and len(texts) < 3:
        raise BadCell("no negative", f"{', '.join(columns.negatives)} is empty; drop the row, or give it a negative")
    return SentenceExample(
        tuple(texts),
        columns.rows,
        place,
        score=None if columns.score is None else _score(row.get(columns.score), columns.score),
        group=None if columns.group is None else present_text(row, columns.group).strip(),
        id=row_id(row, columns.id),
    )


def _score(value: Any, column: str) -> float:
    if isinstance(value, bool):
        return float(value)
    number = float(value) if value is not None and is_number(str(value)) else math.nan
    if not math.isfinite(number):
        raise BadCell("no score", f"{column} is {str(value)[:40]!r}, not a finite number")
    return number
