"""Labelled examples that are in memory: pandas, Arrow and `datasets` tables, lists of rows, lists of pairs.

    with as_files(frame, [("text", "label")], of="classify") as names:
        read_texts(names)

A table is written as JSON lines and read as a file is: the same columns are guessed, the same rows refused, the same
labels seen. Errors name rows as the user knows them (`RowNames`), never the file. Nothing is imported for it: a table
is known by what it can do (`to_pylist`, `to_dict`, `column_names`).
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError
from larvatus.core.text_inputs import as_string
from larvatus.data.labelled.records import OTHER_TYPE, Dataset, Place, RowPlace
from larvatus.data.labelled.tables import path_strings

Examples = str | Path | Sequence[Any] | Dataset[Any] | Any
"""Files, or what holds examples in memory."""
IN_MEMORY = " in memory"
"""How the source of a data set ends that comes from no file."""
Tuples = Sequence[tuple[str, ...]]
"""Which columns the members of a tuple are, for each length; the task defines it (`Task.as_tuples`)."""

WRITTEN = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, Path, complex)
"""Values whose string is what a table would hold."""


@contextmanager
def as_files(given: Examples, tuples: Tuples, *, of: str) -> Iterator[list[str]]:
    """Names of files with these examples: those given, or one that lasts as long as this does."""
    if are_files(given):
        names: Any = given
        yield path_strings(names)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{type(given).__name__}.jsonl"
        count = 0
        with path.open("w", encoding="utf-8") as stream:
            for row in rows_of(given, tuples, of=of):
                stream.write(json.dumps(_plain(row), ensure_ascii=False) + "\n")
                count += 1
        if not count:
            raise DataError("there are no examples in what was given; give some")
        yield [str(path)]


@dataclass(frozen=True)
class RowNames:
    """How rows of a table in memory are called, of which a reader knows a file and a line."""

    path: str
    """The file that the reader was given."""
    source: str
    """The table: DataFrame, list."""
    index: Sequence[Any] | None
    """Labels of rows, of a DataFrame."""

    @classmethod
    def of(cls, given: Any, path: str) -> RowNames:
        index: Any = getattr(given, "index", None)
        labels = index.tolist() if _is_frame(given) and hasattr(index, "tolist") else None
        return cls(path, type(given).__name__, labels)

    def place(self, place: Place) -> RowPlace:
        """The row that a line of the file holds."""
        return RowPlace(self.source, place.line, row=self._row(place.line), labelled=self.index is not None)

    def said(self, message: str) -> str:
        """An error as the user can use it: rows and table in place of the file."""
        lines = re.compile(re.escape(self.path) + r":(\d+)")
        named = lines.sub(lambda match: str(self.place(Place(self.path, int(match[1])))), message)
        return named.replace(self.path, self.source)

    def _row(self, line: int) -> str:
        known = self.index is not None and line <= len(self.index)
        return repr(self.index[line - 1]) if known and self.index is not None else str(line - 1)


def rows_of(given: Any, tuples: Tuples, *, of: str) -> Iterator[dict[str, Any]]:
    """Each example as columns and their values."""
    classes = _class_names(given)
    for number, row in enumerate(_rows(given)):
        if isinstance(row, Mapping):
            yield {str(name): _named(value, classes.get(name)) for name, value in row.items()}
        else:
            yield _of_tuple(row, tuples, of, f"{type(given).__name__}[{number}]")


def _rows(given: Any) -> Iterable[Any]:
    if hasattr(given, "to_pylist"):  # an Arrow table
        return given.to_pylist()  # type: ignore[no-any-return]
    if hasattr(given, "column_names") and hasattr(given, "features"):  # a `datasets.Dataset`: rows when iterated
        return given  # type: ignore[no-any-return]
    if _is_frame(given):
        names = [str(name) for name in given.columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{type(given).__name__}: two columns are named {twice!r}; rename one")
        return given.to_dict("records")  # type: ignore[no-any-return]
    if isinstance(given, Mapping):
        return _of_columns(given)
    if hasattr(given, "tolist"):  # NumPy
        return given.tolist()  # type: ignore[no-any-return]
    if isinstance(given, Iterable):
        return given
    raise DataError(f"{type(given).__name__} holds no examples; give files, a table, or a list of pairs")


def _is_frame(given: Any) -> bool:
    """Whether it is a DataFrame of pandas."""
    return hasattr(given, "to_dict") and hasattr(given, "columns")


def _of_columns(given: Mapping[Any, Any]) -> Iterable[dict[Any, Any]]:
    """Rows of a dict of columns."""
    columns = {name: list(values) for name, values in given.items() if not isinstance(values, str | bytes)}
    lengths = {len(values) for values in columns.values()}
    if len(columns) < len(given) or len(lengths) != 1:
        raise DataError("a dict of examples holds columns, lists of one length; give those, or a list of rows")
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _of_tuple(row: Any, tuples: Tuples, of: str, name: str) -> dict[str, Any]:
    if isinstance(row, Sequence) and not isinstance(row, str):
        for names in tuples:
            if len(names) == len(row):
                return dict(zip(names, row, strict=True))
    forms = ["a row of columns", *(f"({', '.join(names)})" for names in tuples)]
    raise DataError(f"{name} is no example: an example of {of} is {' or '.join(forms)}, not {str(row)[:60]!r}")


def _class_names(given: Any) -> dict[Any, Sequence[str]]:
    """Names of the classes whose numbers are in the columns of a `datasets` table, in lists of them too."""
    features = getattr(given, "features", None)
    named = {}
    for name, feature in features.items() if isinstance(features, Mapping) else ():
        names = getattr(getattr(feature, "feature", feature), "names", None)
        if names:
            named[name] = names
    return named


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if names is None or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_named(each, names) for each in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of NumPy as numbers, what is missing as nothing, other objects by their type."""
    if (text := as_string(value)) is not None:
        return text
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if hasattr(value, "as_py"):
        return _plain(value.as_py())
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return str(value) if isinstance(value, WRITTEN) else {OTHER_TYPE: type(value).__name__}


def are_files(given: Any) -> bool:
    """Whether files are named, and not examples given."""
    named = isinstance(given, list | tuple) and all(isinstance(name, str | Path) for name in given)
    return isinstance(given, str | Path) or named
