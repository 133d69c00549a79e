"""Labelled examples that are in memory: pandas, Arrow and `datasets` tables, lists of rows, lists of pairs.

    with as_files(frame, [("text", "label")], of="classify") as names:
        read_texts(names)

A table is written as JSON lines and read as a file is: the same columns are guessed, the same rows refused, the same
labels seen. Nothing is imported for it: a table is known by what it can do (`to_pylist`, `to_dict`, `column_names`).
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from larvatus.errors import DataError
from larvatus.labelled.records import Dataset
from larvatus.labelled.texts import names_of

Examples = str | Path | Sequence[Any] | Dataset[Any] | Any
"""Files, or what holds examples in memory."""
IN_MEMORY = " in memory"
"""How the source of a data set ends that comes from no file."""
Tuples = Sequence[tuple[str, ...]]
"""Which columns the members of a tuple are, for each length; a task says it (`Task.as_tuples`)."""


@contextmanager
def as_files(given: Examples, tuples: Tuples, *, of: str) -> Iterator[list[str]]:
    """Names of files with these examples: those given, or one that lasts as long as this does."""
    if are_files(given):
        names: Any = given
        yield names_of(names)
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


def rows_of(given: Any, tuples: Tuples, *, of: str) -> Iterator[dict[str, Any]]:
    """Each example as columns and their values."""
    classes = _class_names(given)
    for row in _rows(given):
        if isinstance(row, Mapping):
            yield {str(name): _named(value, classes.get(name)) for name, value in row.items()}
        else:
            yield _of_tuple(row, tuples, of)


def _rows(given: Any) -> Iterable[Any]:
    if hasattr(given, "to_pylist"):  # an Arrow table
        return given.to_pylist()  # type: ignore[no-any-return]
    if hasattr(given, "column_names") and hasattr(given, "features"):  # a `datasets.Dataset`: rows when iterated
        return given  # type: ignore[no-any-return]
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # pandas
        return given.to_dict("records")  # type: ignore[no-any-return]
    if isinstance(given, Iterable):
        return given
    raise DataError(f"{type(given).__name__} holds no examples; give files, a table, or a list of pairs")


def _of_tuple(row: Any, tuples: Tuples, of: str) -> dict[str, Any]:
    if isinstance(row, Sequence) and not isinstance(row, str):
        for names in tuples:
            if len(names) == len(row):
                return dict(zip(names, row, strict=True))
    forms = ["a row of columns", *(f"({', '.join(names)})" for names in tuples)]
    raise DataError(f"an example of {of} is {' or '.join(forms)}, not {str(row)[:60]!r}")


def _class_names(given: Any) -> dict[Any, Sequence[str]]:
    """Names of the classes whose numbers stand in the columns of a `datasets` table, in lists of them too."""
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
    """As JSON has it: numbers of NumPy as numbers, what is missing as nothing."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)


def are_files(given: Any) -> bool:
    """Whether files are named, and not examples given."""
    named = isinstance(given, list | tuple) and all(isinstance(name, str | Path) for name in given)
    return isinstance(given, str | Path) or named
