"""Parquet as rows. Plain columns (text, numbers, lists and records of them) are opened, no others: objects may be code.

Files that the `datasets` library wrote say in their metadata which number stands for which class; it gets its name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Place, Row, nul_in, shown
from larvatus.data.text.archives import BROKEN
from larvatus.data.text.archives import parquet_growth, take_batch, text_columns
from larvatus.data.text.records import open_seekable

ROWS = 1_024
"""Rows held at a time."""


def parquet_rows(name: str) -> Iterator[tuple[Place, Row]]:
    """The rows of a file, numbered from 1."""
    with open_seekable(name) as stream:
        try:
            schema = pq.read_schema(stream)
            file = pq.ParquetFile(stream, memory_map=False, read_dictionary=text_columns(schema))
            plain = [field.name for field in schema if _is_plain(field.type)]
            if twice := [column for column, count in Counter(schema.names).items() if count > 1]:
                raise DataError(f"{shown(name)}: two columns are named {twice[0]!r}; rename one")
            classes = {column: names for column, names in _classes(schema.metadata).items() if column in plain}
            number, growth = 0, parquet_growth(shown(name), stream.seek(0, os.SEEK_END))
            for batch in file.iter_batches(batch_size=ROWS, columns=plain):
                take_batch(growth, batch)
                for row in _records(batch, shown(name), number):
                    number += 1
                    if column := nul_in(row):
                        raise DataError(f"{shown(name)}:{number}: {column} holds a NUL byte; repair it")
                    row.update({column: _named(row[column], names) for column, names in classes.items()})
                    yield Place(shown(name), number), row
        except (pa.ArrowException, *BROKEN, UnicodeDecodeError) as broken:
            raise DataError(f"{shown(name)} is no whole Parquet file: {broken}") from broken


def _records(batch: Any, name: str, before: int) -> list[Row]:
    """The rows of a batch, after so many of other batches; one that is not UTF-8 is named."""
    try:
        rows: list[Row] = batch.to_pylist()
    except UnicodeDecodeError:
        for index in range(batch.num_rows):
            try:
                batch.slice(index, 1).to_pylist()
            except UnicodeDecodeError as fault:
                raise DataError(f"{name}:{before + index + 1}: a text is not UTF-8 ({fault.reason})") from fault
        raise
    return rows


def _is_plain(kind: Any) -> bool:
    types = pa.types
    if types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return len({*names}) == len(names) and all(
            _is_plain(kind.field(index).type) for index in range(kind.num_fields)
        )
    strings = types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view()
    return bool(strings or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _classes(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """Names of the classes of each column, where the file tells them."""
    try:
        told: Any = msgspec.json.decode((metadata or {}).get(b"huggingface", b"{}"))
        features = told["info"]["features"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    classes = {}
    for column, feature in features:
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        names = inner.get("names") if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            classes[column] = names
    return classes


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if not isinstance(value, int) or value >= len(names):
        return value
    return names[value] if value >= 0 else None  # -1 is how that library writes "unknown"
