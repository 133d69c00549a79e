"""Columns of a table: which one holds the text, whether the first row names them, and notes about the choice.

    text_columns(table)          # ("premise", "hypothesis"); ("body", None)

Names come first: premise and hypothesis, sentence1 and sentence2, text, review, …; case and marks do not count. Where
names do not tell, the column of the longest values is the text, and a second one like it its pair.

The first row is a header where one of its cells is a known name of a column and no cell reads like a sentence; or where
a column is numbers but for its first cell; or where its first cell is the only one of its kind in a column of few
values. CoLA's ``gj04 1 "" The sailors rode …`` is none of these.

    with column_notes_to(print):
        …                       # news.csv: 2,000 rows, text from column 'text' (title, label ignored); choose with …

Notes go to a command's sink, or to Python's `logging`. Some jobs read text several times, and from many similar files:
files with the same columns are reported once.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import digits

PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("texta", "textb"),
    ("text1", "text2"),
    ("sentencea", "sentenceb"),
    ("senta", "sentb"),
    ("sent1", "sent2"),
    ("1string", "2string"),
    ("s1", "s2"),
    ("first", "second"),
    ("text", "pair"),
)
TEXTS = (
    *("text", "sentence", "content", "review", "body", "comment", "tweet", "message", "utterance", "document"),
    *("abstract", "description", "headline", "title", "string", "query", "question", "reviewbody", "reviewtext"),
)
LABELS = (
    *("goldlabel", "label", "labels", "class", "classes", "category", "categories", "target", "gold", "score"),
    *("quality", "similarity", "similarityscore", "relatednessscore", "entailmentjudgment", "isduplicate"),
    *("sentiment", "polarity"),
    *("rating", "stars", "topic", "topics", "intent", "emotion", "emotions", "acceptability", "labeltext", "y"),
)
IDS = ("id", "ids", "index", "idx", "guid", "pairid", "uid", "rowid", "exampleid", "sentid")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("tags", "nertags", "postags", "chunktags", "ner", "upos", "pos", "labels", "label", "tag")
ROLES = ("anchor", "caption", "captions", "hardnegative", "groupid", "clusterid", "imageid", "relevance")
"""Columns of texts that belong together; positive and negative may be classes too, so they tell no header."""
KNOWN = frozenset([*(name for pair in PAIRS for name in pair), *TEXTS, *LABELS, *IDS, *WORDS, *TAGS, *ROLES])

LONGEST_NAME = 40

LOG = logging.getLogger("larvatus")
SHOWN = 6
"""Names of ignored columns that are listed."""
_MOST = 1_024  # notes that are remembered

_sinks: list[Callable[[str], None]] = []
_said: set[tuple[str, ...]] = set()


def normalise_name(name: str) -> str:
    """Only letters and digits, in lower case.

    >>> normalise_name("#1 String"), normalise_name("gold_label")
    ('1string', 'goldlabel')
    """
    return "".join(char for char in name.lower() if char.isalnum())


def first_named(wanted: tuple[str, ...], columns: tuple[str, ...]) -> str | None:
    """The column whose name comes first in a list of wanted ones."""
    named = {normalise_name(column): column for column in reversed(columns)}
    return next((named[name] for name in wanted if name in named), None)


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows[0] is a header, from the first rows of a table."""
    first, rest = rows[0], rows[1:]
    cells = [cell.strip() for cell in first]
    if any(len(cell) > LONGEST_NAME or len(cell.split()) > 4 or is_number(cell) for cell in cells):
        return False
    if any(normalise_name(cell) in KNOWN for cell in cells):
        return True
    if len(set(cells)) < len(cells):
        return False
    columns = [[row[place].strip() for row in rest if len(row) == len(first)] for place in range(len(first))]
    if any(column and all(is_number(cell) for cell in column) for column in columns):
        return True
    return any(_few(column) and cell not in column for cell, column in zip(cells, columns, strict=True))


def _few(column: Sequence[str]) -> bool:
    """Whether a column has few values, each seen several times."""
    return len(column) >= 4 and min(Counter(column).values()) >= 2


def is_number(cell: str) -> bool:
    """Whether a cell is a number.

    >>> [is_number(cell) for cell in ("5.000", "-1", "1e3", "nan", "", "gj04")]
    [True, True, True, False, False, False]
    """
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


class SampledTable(Protocol):
    """Columns of a table and its first rows."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def header(self) -> bool: ...
    @property
    def sample(self) -> Sequence[dict[str, Any]]: ...


@dataclass(frozen=True)
class SampledRows:
    """The first rows of a table, a `SampledTable`."""

    name: str
    columns: tuple[str, ...]
    header: bool
    sample: list[dict[str, Any]]


def find_column(name: str, columns: Sequence[str], asked: str) -> str:
    """The column of that name, or of that number from 1; one that is not there is refused with those that are."""
    if asked in columns:
        return asked
    number = digits(asked) if asked.isdigit() else None
    if number is not None and 1 <= number <= len(columns):
        return columns[number - 1]
    shown = ", ".join(columns[:40]) + (", …" if len(columns) > 40 else "")
    raise UsageError(f"{name} has no column {asked!r:.60} (it has {shown}); name one of these: --text COLUMN")


def check_columns(name: str, columns: Sequence[str], wanted: Sequence[str], *, option: str) -> None:
    """Refuse names of columns that a table does not have."""
    for column in wanted:
        if column not in columns:
            shown = ", ".join(columns[:40]) + (", …" if len(columns) > 40 else "")
            raise UsageError(
                f"{name} has no column {column!r:.60} (it has {shown}); name one of these: {option} COLUMN"
            )


def document_column(table: SampledTable) -> str:
    """The column that the documents of a table are read from: one called text, otherwise as `text_columns` guesses.

    Of a pair the first is taken, unless the second is twice as long: of question and context, the context.
    """
    named = table.columns if table.header else ()
    if (text := first_named(("text",), named)) is not None and all_hold(table, text, _is_text):
        return text
    taken = [name for name in (first_named(IDS, named), first_named(LABELS, named)) if name is not None]
    first, second = text_columns(table, taken if len(taken) < len(table.columns) else ())
    if second is not None and _mean_length(table, second) >= 2 * _mean_length(table, first):
        return second
    return first


def text_columns(table: SampledTable, taken: Collection[str] = ()) -> tuple[str, str | None]:
    named = (
        {normalise_name(name): name for name in reversed(table.columns) if name not in taken} if table.header else {}
    )
    for first, second in PAIRS:
        if first in named and second in named:
            return named[first], named[second]
    for name in TEXTS:
        if name in named and all_hold(table, named[name], _is_text):
            return named[name], None
    lengths = {
        name: _mean_length(table, name)
        for name in table.columns
        if name not in taken and all_hold(table, name, _is_text) and not all_hold(table, name, is_numeral)
    }
    if not lengths:
        raise DataError(
            f"{table.name}: no column holds text (it has {', '.join(table.columns)}); name it: --text COLUMN"
        )
    longest = max(lengths, key=lambda name: lengths[name])
    others = [name for name in lengths if name != longest and _like(table, name, lengths[name], lengths[longest])]
    if not others:
        return longest, None
    other = max(others, key=lambda name: lengths[name])
    first, second = sorted((longest, other), key=table.columns.index)
    return first, second


def column_values(table: SampledTable, name: str) -> list[Any]:
    return [row.get(name) for row in table.sample]


def all_hold(table: SampledTable, name: str, holds: Callable[[Any], bool]) -> bool:
    """Whether something holds of all values of a column that are there."""
    values = [value for value in column_values(table, name) if value is not None and value != ""]
    return bool(values) and all(holds(value) for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_numeral(value: Any) -> bool:
    return is_number(value) if isinstance(value, str) else isinstance(value, int | float)


def _mean_length(table: SampledTable, name: str) -> float:
    return sum(len(value or "") for value in column_values(table, name)) / len(table.sample)


def _like(table: SampledTable, name: str, length: float, longest: float) -> bool:
    """Whether a column is text like the longest one: not short, not of few values, words or an unspaced script."""
    values = column_values(table, name)
    distinct = len(set(values))
    if length < longest / 5 or (len(values) > 40 and distinct < max(20, len(values) / 20)):
        return False
    spaced = sum(" " in (value or "").strip() for value in values) > len(values) / 2
    return spaced or sum(not (value or "").isascii() for value in values) > len(values) / 2


@contextmanager
def column_notes_to(sink: Callable[[str], None]) -> Iterator[None]:
    """Send notes of all threads to `sink` while this runs, each once, whatever was reported before."""
    before = set(_said)
    _said.clear()
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.pop()
        _said.clear()
        _said.update(before)


def note(line: str, key: Sequence[str] = ()) -> None:
    """Report a line, once for each key (by default, the line itself)."""
    said = tuple(key) or (line,)
    if said in _said:
        return
    if len(_said) >= _MOST:
        _said.clear()
    _said.add(said)
    (_sinks[-1] if _sinks else LOG.warning)(line)


def note_column(name: str, rows: str, text: str, columns: Sequence[str], *, header: bool) -> None:
    """Report the guess of a text column; a command reports files with the same columns once."""
    ignored = [column for column in columns if column != text]
    shown = ", ".join(ignored[:SHOWN]) + (", …" if len(ignored) > SHOWN else "")
    column = f"column {text!r}" if header else f"column {text} (it has no header)"
    others = f" ({shown} ignored)" if ignored else ""
    key = (text, *columns) if _sinks else (name, text, *columns)
    note(f"{name}: {rows}, text from {column}{others}; choose with --text COLUMN", key)


def note_blank_rows(name: str, count: int) -> None:
    """Report rows whose text cell is empty."""
    note(f"{name}: {count:,} {'row' if count == 1 else 'rows'} without text skipped")
