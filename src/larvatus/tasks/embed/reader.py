"""Texts that belong together from CSV, TSV, JSONL and Parquet, and plain text from files of lines.

    train = read_sentences("faq.tsv")
    print(train.describe())                # … read as: pairs, anchor = question, positive = answer

Columns tell what a row is by their names first: anchor, positive, negative; question and answer; sentence1, sentence2
and score; text and group. Two columns of text without these names are a pair. Any column may be named instead
(`SentenceFiles`). A file that is no table (`.txt`, by its name) has a text a line. Empty texts and scores that are no
numbers are faults: raised with their place, or collected in `problems`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from larvatus.core.errors import DataError
from larvatus.core.settings import Flag
from larvatus.data.labelled.file_options import Column, FileOptions, Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place, Row, source_name
from larvatus.data.labelled.tables import ENDINGS, LabelledTable, ending, named_column, open_table
from larvatus.data.labelled.texts import BadCell, cell_text, present_text, several_texts
from larvatus.data.text.columns import (
    IDS,
    LABELS,
    all_hold,
    column_values,
    first_named,
    is_number,
    is_numeral,
    normalise_name,
    text_columns,
)
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.embed.examples import Rows, SentenceExample
from larvatus.tasks.tables import read_files, row_id, valid_rows

PAIRS = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("question", "positive"),
    ("query", "answer"),
    ("question", "answer"),
    ("title", "text"),
    ("title", "body"),
    ("title", "abstract"),
    ("source", "target"),
)
"""Names of columns of texts that belong together, beyond those of any pair."""
NEGATIVE = re.compile(r"(hard)?negatives?\d*")
SCORES = ("score", "similarity", "similarityscore", "relatednessscore", "label", "goldlabel")
FEWEST = 4
"""Rows from which on a column without a name is known by its values."""
GROUPS = ("group", "groupid", "cluster", "clusterid", "imageid", "image", "label", "intent", "topic", "category")


class SentenceFiles(FileOptions):
    """Tables of texts that belong together, or plain text, a text a line."""

    things: ClassVar[str] = "texts to embed"
    refusal: ClassVar[str] = "{flags} are for {things}; these have --text, --pair, --negative, --score and --member"

    rows: Rows | None = None
    """Kind of rows; default: by their columns."""
    text: Column = None
    """Column of the first text, by name or number; default: guessed."""
    pair: Column = None
    """Column of the text that belongs to it; default: guessed."""
    negative: Annotated[tuple[str, ...], Flag(metavar="COLUMN")] = ()
    """Column of a text that does not belong to it, or of a list of such; repeatable; default: by name."""
    score: Column = None
    """Column of the similarity of the two texts; default: guessed."""
    member: Column = None
    """Column that names the group of a text; texts of one group belong together; default: guessed."""
    header: bool | None = None
    """Whether the first row names columns; default: detected."""
    quoting: bool | None = None
    """Whether quotes hold cells together; default: only in CSV."""


@dataclass(frozen=True, kw_only=True)
class SentenceColumns:
    """The columns of one table, by name, and what its rows are."""

    rows: Rows
    text: str
    pair: str | None = None
    negatives: tuple[str, ...] = ()
    score: str | None = None
    group: str | None = None
    members: tuple[str, ...] = ()
    """Columns whose texts are one group in each row, where no column names groups."""
    id: str | None = None

    def describe(self) -> str:
        """``pairs, anchor = question, positive = answer``"""
        pair = self.rows in ("pairs", "triplets")
        parts = {
            ("anchor" if pair else "text"): self.text,
            ("positive" if pair else "second text"): self.pair,
            "negative": ", ".join(self.negatives) or None,
            "score": self.score,
            "group": self.group,
        }
        if self.members:
            return f"{self.rows}, a row is a group of {', '.join(self.members)}"
        return f"{self.rows}, " + ", ".join(f"{role} = {name}" for role, name in parts.items() if name is not None)


def sentence_columns(table: LabelledTable, asked: SentenceFiles = SentenceFiles()) -> SentenceColumns:
    """The named columns, the rest by their names, and the kind of rows that they make."""
    named = {"text": asked.text, "pair": asked.pair, "score": asked.score, "group": asked.member}
    text, pair, score, group = (
        None if name is None else named_column(table, name, role) for role, name in named.items()
    )
    negatives = tuple(named_column(table, name, "negative") for name in asked.negative) or tuple(
        name for name in table.columns if table.header and NEGATIVE.fullmatch(normalise_name(name))
    )
    taken = {name for name in (text, pair, score, group, *negatives) if name is not None}
    if asked.rows == "groups" and text is None and group is None and not _named(GROUPS, table.columns):
        members = _members(table, taken)
        return SentenceColumns(rows="groups", text=members[0], members=members, id=first_named(IDS, table.columns))
    if text is None or (pair is None and asked.rows in ("pairs", "triplets", "scores")):
        text, pair = _texts(table, taken, text, pair)
    if asked.rows in ("groups", "texts"):
        pair = None
    rest = tuple(name for name in table.columns if name not in {text, pair, *taken})
    free = rest if table.header else ()
    if pair is not None and not negatives:
        score = score or next((name for name in _named(SCORES, free) if all_hold(table, name, is_numeral)), None)
        if score is None and not table.header:
            score = next((name for name in rest if _repeats(table, name) and all_hold(table, name, is_numeral)), None)
    elif pair is None:
        group = group or first_named(GROUPS, free)
    rows = asked.rows or _rows(table, pair=pair, negatives=negatives, score=score, group=group, rest=rest)
    chosen = SentenceColumns(rows=rows, text=text, pair=pair, negatives=negatives, score=score, group=group)
    return _checked(table, chosen, identifier=first_named(IDS, free))


def _members(table: LabelledTable, taken: set[str]) -> tuple[str, ...]:
    """The columns of texts, or of lists of texts, that are one group in each row."""
    lists = [name for name in table.columns if all_hold(table, name, lambda value: isinstance(value, list))]
    texts = _text_columns(table, taken)
    members = lists or [name for name in texts if normalise_name(name) not in IDS or not table.header]
    if not lists and len(members) < 2:
        raise DataError(
            f"{table.name}: groups need --member COLUMN, which names the group of a text, or rows of several texts "
            f"(it has {', '.join(table.columns)})"
        )
    return tuple(members)


def _text_columns(table: LabelledTable, taken: set[str]) -> list[str]:
    """Columns whose values are texts and not numbers."""
    return [
        name
        for name in table.columns
        if name not in taken and all_hold(table, name, _is_text) and not all_hold(table, name, is_numeral)
    ]


def _repeats(table: LabelledTable, name: str) -> bool:
    """Whether a column has few values, each in several rows, as labels and grades have."""
    values = [str(value) for value in column_values(table, name)]
    return len(values) >= FEWEST and 2 <= len(set(values)) <= len(values) // 2


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _texts(table: LabelledTable, taken: set[str], text: str | None, pair: str | None) -> tuple[str, str | None]:
    """The columns of texts that nobody named."""
    if text is not None or pair is not None:
        known = text if text is not None else pair
        assert known is not None
        others = [name for name in text_columns(table, taken) if name is not None and name != known]
        other = others[0] if others else None
        return (text, other) if text is not None else (other or known, pair)
    named = {normalise_name(name): name for name in table.columns if name not in taken} if table.header else {}
    for first, second in PAIRS:
        if first in named and second in named:
            return named[first], named[second]
    texts = [name for name in _text_columns(table, taken) if not _repeats(table, name)]
    if not table.header and len(texts) == 2:  # a title and its text may differ much in length
        return texts[0], texts[1]
    return text_columns(table, taken | set(_named((*IDS, *SCORES, *GROUPS), table.columns)))


def _named(names: tuple[str, ...], columns: tuple[str, ...]) -> list[str]:
    """The columns with one of these names, in the order of the names."""
    return [column for name in names for column in columns if normalise_name(column) == name]


def _rows(
    table: LabelledTable,
    *,
    pair: str | None,
    negatives: tuple[str, ...],
    score: str | None,
    group: str | None,
    rest: tuple[str, ...],
) -> Rows:
    if pair is None:
        return "groups" if group is not None else "texts"
    if negatives:
        return "triplets"
    if score is not None:
        return "scores"
    named = first_named(LABELS, rest) if table.header else next((name for name in rest if _repeats(table, name)), None)
    if (label := named) is not None:
        raise DataError(
            f"{table.name}: the column {label} has labels of pairs, but no numbers; keep the pairs that belong "
            "together and give --rows pairs, or name a column of numbers: --score COLUMN"
        )
    return "pairs"


def _checked(table: LabelledTable, columns: SentenceColumns, *, identifier: str | None) -> SentenceColumns:
    """Refuse rows that lack a column; drop the columns that they do not read."""
    rows = columns.rows
    needed: dict[str, dict[str, object]] = {
        "pairs": {"--pair": columns.pair},
        "triplets": {"--pair": columns.pair, "--negative": columns.negatives or None},
        "scores": {"--pair": columns.pair, "--score": columns.score},
        "groups": {"--member": columns.group},
        "texts": {},
    }
    for flag, column in needed[rows].items():
        if column is None:
            there = ", ".join(table.columns)
            raise DataError(f"{table.name}: {rows} need {flag} COLUMN, and no column looks like it (it has {there})")
    two = rows in ("pairs", "triplets", "scores")
    return SentenceColumns(
        rows=rows,
        text=columns.text,
        pair=columns.pair if two else None,
        negatives=columns.negatives if rows == "triplets" else (),
        score=columns.score if rows == "scores" else None,
        group=columns.group if rows == "groups" else None,
        id=identifier,
    )


# Reading files.


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
