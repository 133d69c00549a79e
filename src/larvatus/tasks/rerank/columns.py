"""Which columns of a table hold the query, the passages and their relevance, and so which form its rows have.

| rows | columns |
| --- | --- |
| pairs | `query`, `passage`, `label`: 0 and 1, or grades |
| positives | `query`, `positive` or `positives`, `negative` or `negatives`: texts, or lists of them |
| lists | `query`, `passages`: a list of texts, `labels`: a list of as many numbers |

    relevance_columns(table).describe()           # pairs, query = question, passage = sentence, label = label

Columns are known by their names. In a table without a header, the two columns of text are query and passage, in this
order, and a column of numbers is the label. Query, passage and label may be named instead (`RelevanceFiles`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Column, TableFiles
from larvatus.data.labelled.tables import Columns, LabelledTable, named_column
from larvatus.data.text.columns import IDS, all_hold, column_values, first_named, is_numeral, normalise_name

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
