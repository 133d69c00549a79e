"""Queries with passages and their relevance from CSV, TSV, JSONL and Parquet, in the forms of `columns.py`.

    train = read_relevance("train.jsonl")
    print(train.describe())                # … read as: positives, query = query, positive = pos, negative = neg

    {"query": "Where does a river end?", "pos": ["In the sea."], "neg": ["A river bank is steep."]}

A row of several passages becomes an example for each. Empty queries and passages, labels that are no finite number of 0
or more, and rows without a positive are faults: raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place, Row
from larvatus.data.labelled.tables import Columns, LabelledTable, open_table
from larvatus.data.labelled.texts import BadCell, TextFormat, present_text, several_texts
from larvatus.data.text.columns import is_number
from larvatus.tasks.rerank.columns import RelevanceColumns, RelevanceFiles, relevance_columns
from larvatus.tasks.rerank.examples import RelevanceExample, by_query
from larvatus.tasks.tables import open_unlabelled, read_files, row_id, valid_rows


def read_relevance(
    paths: Paths, files: RelevanceFiles = RelevanceFiles(), *, problems: Problems | None = None
) -> Dataset[RelevanceExample]:
    """Labelled examples from one file or several."""

    def read_file(path: str) -> tuple[str, str, Iterator[RelevanceExample]]:
        table = open_table(path, files.table, problems)
        columns = relevance_columns(table, files.columns)
        return table.name, columns.describe(), _examples(table, columns, problems)

    give = "give queries with passages and labels"
    examples, source, read_as = read_files(paths, read_file, give=give, problems=problems)
    return Dataset(tuple(examples), source, f"{read_as} ({len(by_query(examples)):,} queries)")


def read_unlabelled_relevance(
    name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
) -> Iterator[RelevanceExample]:
    """Pairs without labels, one at a time, from a table, or from standard input for ``-``."""
    table = open_unlabelled(name, format, "queries with passages")
    shape = relevance_columns(table, columns, labelled=False)
    say(f"{table.name}: read as: {shape.describe()}")
    yield from _examples(table, shape, None)


def _examples(table: LabelledTable, columns: RelevanceColumns, problems: Problems | None) -> Iterator[RelevanceExample]:
    return valid_rows(table, lambda row, place: examples_of(row, columns, place), problems)


def examples_of(row: Row, columns: RelevanceColumns, place: Place) -> list[RelevanceExample]:
    """An example for each passage of a row; `BadCell` where there is none."""
    query = present_text(row, columns.query)
    if columns.form == "positives":
        graded = [(text, 1.0) for name in columns.positives for text in several_texts(row, name)]
        if not graded:
            raise BadCell("no positive", f"{', '.join(columns.positives)} is empty; drop the row, or give a positive")
        graded += [(text, 0.0) for name in columns.negatives for text in several_texts(row, name)]
        passages, grades = [text for text, _ in graded], [grade for _, grade in graded]
        return [_example(query, *pair, row, columns, place) for pair in zip(passages, grades, strict=True)]
    assert columns.passage is not None
    several = columns.form == "lists"
    passages = several_texts(row, columns.passage) if several else [present_text(row, columns.passage)]
    if columns.label is None:
        return [_example(query, passage, None, row, columns, place) for passage in passages]
    given = row.get(columns.label)
    labels = given if several and isinstance(given, list) else [given]
    if len(labels) != len(passages) or not passages:
        raise BadCell(
            "labels do not fit",
            f"{columns.passage} has {len(passages)} passages, but {columns.label} has {len(labels)} labels",
        )
    return [
        _example(query, passage, relevance_of(label, columns.label), row, columns, place)
        for passage, label in zip(passages, labels, strict=True)
    ]


def _example(
    query: str, passage: str, grade: float | None, row: Row, columns: RelevanceColumns, place: Place
) -> RelevanceExample:
    return RelevanceExample(query, passage, grade, place, row_id(row, columns.id))


def relevance_of(value: Any, column: str) -> float:
    """The relevance that a cell states.

    >>> relevance_of("2", "label"), relevance_of(True, "label")
    (2.0, 1.0)
    """
    number = float(value) if isinstance(value, bool) or (value is not None and is_number(str(value))) else math.nan
    if not math.isfinite(number) or number < 0:
        raise BadCell("no relevance", f"{column} is {str(value)[:40]!r}, not a number of 0 (not relevant) or more")
    return number
