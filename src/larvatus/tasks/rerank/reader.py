"""Queries with passages and their relevance from CSV, TSV, JSONL and Parquet.

    train = read_relevance("train.jsonl")
    print(train.describe())                # … read as: positives, query = query, positive = pos, negative = neg

    {"query": "Where does a river end?", "pos": ["In the sea."], "neg": ["A river bank is steep."]}

| rows | columns |
| --- | --- |
| pairs | `query`, `passage`, `label`: 0 and 1, or grades |
| positives | `query`, `positive` or `positives`, `negative` or `negatives`: texts, or lists of them |
| lists | `query`, `passages`: a list of texts, `labels`: a list of as many numbers |

Columns are known by their names. In a table without a header, the two columns of text are query and passage, in this
order, and a column of numbers is the label. Query, passage and label may be named instead (`RelevanceFiles`).

A row of several passages becomes an example for each. The examples of one query are its candidates: they are held out
together, and a listwise loss compares them. Empty queries and passages, labels that are no finite number of 0 or more,
and rows without a positive are faults: raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Column, Paths, TableFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Remark, Row, shorten
from larvatus.data.labelled.tables import Columns, LabelledTable, named_column
from larvatus.data.labelled.texts import BadCell, TextFormat, present_text, several_texts
from larvatus.data.text.columns import IDS, all_hold, column_values, first_named, is_number, is_numeral, normalise_name
from larvatus.tasks.tables import read_tables, read_unlabelled, row_id


@dataclass(frozen=True, slots=True)
class RelevanceExample(LabelledExample):
    """A pair of a query and a passage, which a model reads together."""

    labels_are: ClassVar = "texts"
    noun: ClassVar = "pairs"
    unit: ClassVar = "queries"
    checked: ClassVar = True

    query: str
    passage: str
    grade: float | None
    """How relevant the passage is: 0 is not at all; None if unknown."""
    place: Place
    id: str | None = None

    def reads(self) -> str:
        """The query, with the passage after a tab."""
        return f"{self.query}\t{self.passage}"

    def answer(self) -> object:
        return self.grade

    def key(self) -> Hashable:
        return self.query

    def contents(self) -> list[Any]:
        return [self.query, self.passage, self.grade]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterator[Remark]:
        """Queries that define no order of passages."""
        for name, part in parts.items():
            lists = by_query(part)
            without = [rows[0] for rows in lists.values() if not any(row.grade for row in rows)]
            yield Remark(
                "queries without a relevant passage",
                f"{len(without):,} of {len(lists):,} queries of {name} have no relevant passage: nothing to rank first",
                [f"{row.place}: {shorten(row.query)}" for row in without],
            )
            single = [rows[0] for rows in lists.values() if len(rows) == 1]
            yield Remark(
                "queries with one passage",
                f"{len(single):,} of {len(lists):,} queries of {name} have one passage only: there is nothing to rank",
                [f"{row.place}: {shorten(row.query)}" for row in single],
            )


def by_query(examples: Iterable[RelevanceExample]) -> dict[str, list[RelevanceExample]]:
    """The candidates of each query, in their order."""
    lists: dict[str, list[RelevanceExample]] = {}
    for example in examples:
        lists.setdefault(example.query, []).append(example)
    return lists


QUERIES = ("query", "question", "anchor", "querytext", "q", "claim", "sentence1", "text1")
PASSAGES = (
    *("passage", "document", "doc", "answer", "response", "sentence", "candidate", "passagetext", "context"),
    *("text", "body", "content", "abstract", "sentence2", "text2"),
)
GRADES = ("label", "relevance", "grade", "rel", "score", "relevant", "isrelevant", "target")
LISTS = ("passages", "documents", "docs", "candidates", "texts", "answers", "responses")
LISTED_GRADES = ("labels", "relevances", "grades", "scores", *GRADES)
POSITIVE = re.compile(r"pos|positives?\d*|positivepassages")
NEGATIVE = re.compile(r"neg|(hard)?negatives?\d*|negativepassages")
Form = Literal["pairs", "positives", "lists"]


class RelevanceFiles(TableFiles):
    """Tables of queries with passages and their relevance."""

    things: ClassVar[str] = "queries with passages"
    refusal: ClassVar[str] = "{flags} are for {things}; these have --text (the query), --pair (the passage) and --label"

    text: Column = None
    """Column of the query, by name or number; default: guessed."""
    pair: Column = None
    """Column of the passage, or of a list of passages; default: guessed."""
    label: Column = None
    """Column of the relevance, 0 for none, or of a list of as many; default: guessed."""


@dataclass(frozen=True, kw_only=True)
class RelevanceColumns:
    """The columns of one table, by name."""

    form: Form
    query: str
    passage: str | None = None
    """Column of a passage, or of a list of passages."""
    label: str | None = None
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    id: str | None = None

    def describe(self) -> str:
        """``pairs, query = question, passage = sentence, label = label``"""
        parts = {
            "query": self.query,
            "passage" if self.form == "pairs" else "passages": self.passage,
            "label" if self.form == "pairs" else "labels": self.label,
            "positive": ", ".join(self.positives) or None,
            "negative": ", ".join(self.negatives) or None,
        }
        return f"{self.form}, " + ", ".join(f"{role} = {name}" for role, name in parts.items() if name is not None)


def relevance_columns(table: LabelledTable, asked: Columns = Columns(), *, labelled: bool = True) -> RelevanceColumns:
    """The columns as requested, the rest by their names, and the form that they make."""
    roles = {"query": asked.text, "passage": asked.pair, "label": asked.label}
    query, passage, label = (None if name is None else named_column(table, name, role) for role, name in roles.items())
    if not table.header:
        return _by_values(table, query, passage, label, labelled=labelled)
    free = tuple(name for name in table.columns if name not in (query, passage, label))
    query = query or first_named(QUERIES, free)
    if query is None:
        raise DataError(f"{table.name}: no column is a query ({_names(table)}); name it: --text COLUMN")
    free = tuple(name for name in free if name != query)
    identifier = first_named(IDS, free)
    positives = tuple(name for name in free if POSITIVE.fullmatch(normalise_name(name)))
    if passage is None and positives:
        negatives = tuple(name for name in free if NEGATIVE.fullmatch(normalise_name(name)))
        return RelevanceColumns(form="positives", query=query, positives=positives, negatives=negatives, id=identifier)
    passage = passage or _list_column(table, free) or first_named(PASSAGES, free)
    if passage is None:
        raise DataError(f"{table.name}: no column is a passage ({_names(table)}); name it: --pair COLUMN")
    listed = _holds_lists(table, passage)
    if labelled:
        label = label or first_named(LISTED_GRADES if listed else GRADES, free)
    if labelled and label is None:
        raise DataError(f"{table.name}: no column has the relevance ({_names(table)}); name it: --label COLUMN")
    form: Form = "lists" if listed else "pairs"
    return RelevanceColumns(form=form, query=query, passage=passage, label=label, id=identifier)


def _by_values(
    table: LabelledTable, query: str | None, passage: str | None, label: str | None, *, labelled: bool
) -> RelevanceColumns:
    """The columns of a table without a header: the first two of texts, and the last of numbers."""
    taken = {query, passage, label}
    numbers = [name for name in table.columns if name not in taken and all_hold(table, name, is_numeral)]
    texts = [name for name in table.columns if name not in {*taken, *numbers} and _has_words(table, name)]
    query = query or (texts.pop(0) if texts else None)
    passage = passage or (texts.pop(0) if texts else None)
    label = label or (numbers[-1] if numbers else None)
    if query is None or passage is None or (labelled and label is None):
        raise DataError(
            f"{table.name} has no header, and its {len(table.columns)} columns are not a query, a passage and a "
            "number; name them in a first row, or with --text, --pair and --label"
        )
    return RelevanceColumns(form="pairs", query=query, passage=passage, label=label if labelled else None)


def _has_words(table: LabelledTable, name: str) -> bool:
    """Whether a column holds texts of several words, and no identifiers."""
    return any(isinstance(value, str) and len(value.split()) > 1 for value in column_values(table, name))


def _list_column(table: LabelledTable, free: tuple[str, ...]) -> str | None:
    return first_named(LISTS, tuple(name for name in free if _holds_lists(table, name)))


def _holds_lists(table: LabelledTable, name: str) -> bool:
    return any(isinstance(value, list) for value in column_values(table, name))


def _names(table: LabelledTable) -> str:
    return f"it has {', '.join(table.columns)}"


def read_relevance(
    paths: Paths, files: RelevanceFiles = RelevanceFiles(), *, problems: Problems | None = None
) -> Dataset[RelevanceExample]:
    """Labelled examples from one file or several."""
    examples, source, read_as = read_tables(
        paths,
        files.table,
        lambda table: relevance_columns(table, files.columns),
        examples_of,
        give="give queries with passages and labels",
        problems=problems,
    )
    return Dataset(tuple(examples), source, f"{read_as} ({len(by_query(examples)):,} queries)")


def read_unlabelled_relevance(
    name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
) -> Iterator[RelevanceExample]:
    """Pairs without labels, one at a time, from a table, or from standard input for ``-``."""
    shape = partial(relevance_columns, asked=columns, labelled=False)
    return read_unlabelled(name, format, shape, examples_of, things="queries with passages", say=say)


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
