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
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, Place, Row, source_name
from larvatus.data.labelled.tables import ENDINGS, LabelledTable, ending, open_table, path_strings
from larvatus.data.labelled.texts import BadCell, cell_text, present_text, several_texts
from larvatus.data.text.columns import is_number
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.embed.columns import SentenceColumns, SentenceFiles, sentence_columns
from larvatus.tasks.embed.examples import SentenceExample


def read_sentences(
    paths: Paths, files: SentenceFiles = SentenceFiles(), *, problems: Problems | None = None
) -> Dataset[SentenceExample]:
    """Examples from one file or several; all must hold the same kind of rows."""
    examples: list[SentenceExample] = []
    read_as: dict[str, None] = {}
    kinds: dict[str, str] = {}
    names = []
    for path in path_strings(paths):
        if _is_plain(path, files):
            examples += _lines(path)
            names.append(source_name(path))
            shape, described = "texts", "texts, a text a line"
        else:
            table = open_table(path, files.table, problems)
            columns = sentence_columns(table, files)
            examples += _examples(table, columns, problems)
            names.append(table.name)
            shape, described = columns.rows, columns.describe()
        kinds.setdefault(shape, names[-1])
        read_as[described] = None
    source = ", ".join(names)
    if len(kinds) > 1:
        (first, where), (second, other) = list(kinds.items())[:2]
        raise DataError(f"{where} holds {first}, but {other} holds {second}; give files of one kind, or --rows")
    if not examples:
        raise DataError(f"{source}: no row can be used{cause(problems)}; give texts")
    return Dataset(tuple(examples), source, f"read as: {'; '.join(read_as)}")


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


def _examples(table: LabelledTable, columns: SentenceColumns, problems: Problems | None) -> Iterator[SentenceExample]:
    for place, row in table.rows:
        try:
            yield from examples_of(row, columns, place)
        except BadCell as bad:
            fault(problems, bad.kind, place, str(bad))


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
    identifier = row.get(columns.id) if columns.id else None
    return SentenceExample(
        tuple(texts),
        columns.rows,
        place,
        score=None if columns.score is None else _score(row.get(columns.score), columns.score),
        group=None if columns.group is None else present_text(row, columns.group).strip(),
        id=None if identifier is None else str(identifier),
    )


def _score(value: Any, column: str) -> float:
    if isinstance(value, bool):
        return float(value)
    number = float(value) if value is not None and is_number(str(value)) else math.nan
    if not math.isfinite(number):
        raise BadCell("no score", f"{column} is {str(value)[:40]!r}, not a finite number")
    return number
