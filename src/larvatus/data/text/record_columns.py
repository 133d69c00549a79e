"""Which field of JSON records, or column of a Parquet file, holds the text where none was named.

A field called text is taken. Where no record of the first ones has it, the field is guessed from them as in a table
(`text_columns.py`) and reported (`column_notes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.data.text.column_notes import note_column
from larvatus.data.text.documents import ReadOptions
from larvatus.data.text.growth import Growth, take_batch
from larvatus.data.text.text_columns import SampledRows, chosen_column, document_column

SAMPLE_RECORDS = 1_000
SAMPLE_BYTES = 16 * 2**20
"""Bytes of records that are looked at before the field is guessed."""
SAMPLE_ROWS = 64
"""Rows of Parquet that are looked at; its cells have no limit but this."""

Records = Iterator[tuple[int, bytes]]


def guessed_field(name: str, records: Records, options: ReadOptions) -> tuple[ReadOptions, Records]:
    """Options that name the text field, and all records. Records that are none are left to the reader."""
    held: list[tuple[int, bytes]] = []
    sample: list[dict[str, Any]] = []
    size, ended = 0, False
    while len(held) < SAMPLE_RECORDS and size < SAMPLE_BYTES:
        record = next(records, None)
        if record is None:
            ended = True
            break
        held.append(record)
        size += len(record[1])
        row = _object(record[1])
        if row is not None:
            if isinstance(row.get(options.text_field, ""), str) and options.text_field in row:
                return options, chain(held, records)
            sample.append(row)
    columns = tuple(dict.fromkeys(column for row in sample for column in row))
    if not columns or options.text_field in columns:  # nothing to guess from; the reader names what is wrong
        return options, chain(held, records)
    text = document_column(SampledRows(as_text(name), columns, True, sample))
    count = f"{len(held):,} {'row' if len(held) == 1 else 'rows'}" if ended else f"over {len(held):,} rows"
    note_column(as_text(name), count, text, columns, header=True)
    return options.with_text(text), chain(held, records)


def _object(record: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(record)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def parquet_column(name: str, file: Any, options: ReadOptions, growth: Growth) -> ReadOptions:
    """Options that name the text column of a Parquet file; rows that are looked at count as unpacked."""
    schema = file.schema_arrow
    if options.names_column:
        return options.with_text(chosen_column(as_text(name), schema.names, options.text_field))
    if options.text_field in schema.names:
        return options
    strings = [field.name for field in schema if _is_string(field.type) and schema.names.count(field.name) == 1]
    if not strings:
        raise DataError(f"{as_text(name)}: no column holds text (it has {', '.join(schema.names)}); give another file")
    batch = next(file.iter_batches(batch_size=SAMPLE_ROWS, columns=strings), None)
    if batch is not None:
        take_batch(growth, batch)
    try:
        sample = [] if batch is None else batch.to_pylist()
    except UnicodeDecodeError as fault:
        raise DataError(f"{as_text(name)}: a text of its first rows is not UTF-8; name the column: --text") from fault
    if not sample:
        return options.with_text(strings[0])
    text = document_column(SampledRows(as_text(name), tuple(strings), True, sample))
    note_column(as_text(name), f"{file.metadata.num_rows:,} rows", text, schema.names, header=True)
    return options.with_text(text)


def _is_string(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())
