"""Files of results, in the format that their ending names; every command that writes rows writes them here.

    check_row_file(out)                            # before any work: .jsonl, .csv, .tsv or .parquet
    with row_file(out) as write:
        write(result.to_dict(), result.to_dicts())

.jsonl      a result a line, in full: what --json prints
.parquet    the same, a result a row, with lists and records as nested columns, probabilities by label as a map
.csv .tsv   flat rows: one for each candidate, entity, word, … of a result (`to_dicts()`). UTF-8, lines end in a line
            feed; cells with the delimiter, a quotation mark or a line break are quoted as in RFC 4180, in TSV too.
            None is an empty cell, a number is written so that it reads back exactly, a list is JSON.

Results are kept as lines of JSON until all are there: which columns there are, and of which types, the last may decide.
Memory holds some thousand rows.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import is_stream, new_output
from larvatus.core.tables import Row

RowFormat = Literal["jsonl", "csv", "tsv", "parquet"]
ENDINGS: dict[str, RowFormat] = {".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
MAPPING = pa.map_(pa.string(), pa.float64())
ROWS = 4_096
"""Rows held at a time."""

Write = Callable[[Row, Sequence[Row]], None]
"""Called with the full record of a result and its flat rows."""


def row_format(out: Path) -> RowFormat:
    """The format by a file's ending; a device or a pipe gets lines of JSON."""
    if out.suffix.lower() in ENDINGS:
        return ENDINGS[out.suffix.lower()]
    if is_stream(out):
        return "jsonl"
    raise UsageError(f"{out} names no known format; end it in {', '.join(ENDINGS)}")


def check_row_file(out: Path | None, *, also: Sequence[str] = ()) -> None:
    """Refuse a file of rows whose ending names no format, before any work; `also` are a command's other endings."""
    if out is None or out.suffix.lower() in also:
        return
    if out.suffix.lower() not in ENDINGS and not is_stream(out):
        raise UsageError(f"{out} names no known format; end it in {', '.join((*ENDINGS, *also))}")


def is_flat(format: RowFormat) -> bool:
    """Whether a format holds flat rows."""
    return format in DELIMITERS


def json_lines(format: RowFormat, record: Row, rows: Sequence[Row]) -> list[str]:
    """JSON lines stored for a result until the file is written: one for its record, or one for each of its rows."""
    return [json.dumps(each, ensure_ascii=False) for each in (rows if is_flat(format) else [record])]


@contextmanager
def row_file(out: Path) -> Iterator[Write]:
    """A file of results, which appears when it is complete; its ending sets the format."""
    format = row_format(out)
    with new_output(out) as aside, TemporaryDirectory(prefix="larvatus-rows-") as folder:
        spool = aside if format == "jsonl" else Path(folder) / "rows.jsonl"
        with spool.open("w", encoding="utf-8") as stream:

            def write(record: Row, rows: Sequence[Row]) -> None:
                for line in json_lines(format, record, rows):
                    print(line, file=stream)

            yield write
        if format != "jsonl":
            write_rows(aside, format, [spool])


def write_rows(path: Path, format: RowFormat, parts: Iterable[Path]) -> None:
    """Write a file from parts that hold lines of JSON, one for each row."""
    parts = list(parts)
    if format == "parquet":
        _write_parquet(path, parts)
    elif format in DELIMITERS:
        with path.open("w", encoding="utf-8", newline="") as stream:
            _write_delimited(stream, DELIMITERS[format], parts)
    else:
        raise ValueError(f"lines of JSON are {format} already")


def _records(parts: Sequence[Path]) -> Iterator[Row]:
    for part in parts:
        with part.open(encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)


def _batches(parts: Sequence[Path]) -> Iterator[list[Row]]:
    records = _records(parts)
    while batch := list(islice(records, ROWS)):
        yield batch


def _write_delimited(stream: IO[str], delimiter: str, parts: Sequence[Path]) -> None:
    columns = list(dict.fromkeys(name for record in _records(parts) for name in record))
    buffer = io.StringIO()
    # with \r\n as the end of a line, a lone \r or \n within a cell is quoted; what is written ends in \n
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\r\n")
    for row in [columns] if columns else []:
        writer.writerow(row)
    for record in _records(parts):
        stream.write(_taken(buffer))
        writer.writerow([_cell(record.get(name)) for name in columns])
    stream.write(_taken(buffer))


def _taken(buffer: io.StringIO) -> str:
    """The row that a buffer holds, with its line ended as ours are."""
    row = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return row.removesuffix("\r\n") + "\n" if row else ""


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_parquet(path: Path, parts: Sequence[Path]) -> None:
    """Three passes: which columns are mappings, of which types the others are, and then the rows."""
    maps = _mappings(parts)
    schema = pa.schema([])
    try:
        for batch in _batches(parts):
            others = [{name: value for name, value in row.items() if name not in maps} for row in batch]
            schema = pa.unify_schemas([schema, pa.Table.from_pylist(others).schema], promote_options="permissive")
        names = list(dict.fromkeys(name for record in _records(parts) for name in record))
        schema = pa.schema([pa.field(n, MAPPING) if n in maps else _storable(schema.field(n)) for n in names])
        with path.open("wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in _batches(parts):
                rows = [{n: list(v.items()) if n in maps and v is not None else v for n, v in r.items()} for r in batch]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    except pa.ArrowException as fault:
        raise DataError(f"the results do not fit one table ({fault}); write .jsonl instead") from fault


def _mappings(parts: Sequence[Path]) -> set[str]:
    """Columns of records of numbers, whose names are data (labels, endings): one map, not a column for each name."""
    held: dict[str, bool] = {}
    for record in _records(parts):
        for name, value in record.items():
            if value is not None:
                held[name] = held.get(name, True) and isinstance(value, dict) and all(map(_is_number, value.values()))
    return {name for name, holds in held.items() if holds}


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _storable(field: Any) -> Any:
    """Parquet has no record without fields: a column of such, or of nothing but None, becomes one of text."""
    empty = pa.types.is_null(field.type) or (pa.types.is_struct(field.type) and not field.type.num_fields)
    return field.with_type(pa.string()) if empty else field
