"""Tables: CSV, TSV, JSONL and Parquet as rows of named cells, each with its line.

    table = open_table("train.tsv.xz")
    table.columns                     # ('index', 'sentence1', 'sentence2', 'label')
    for place, row in table.rows: ...

CSV is quoted as RFC 4180 says, so a cell may hold line breaks; in TSV a quotation mark is a character, as GLUE's files
need. A header is found by its names and by how it differs from the rows below; without one, columns are "1", "2", ….

Parquet as rows. Plain columns (text, numbers, lists and records of them) are opened, no others: objects may be code.

Files that the `datasets` library wrote say in their metadata which number stands for which class; it gets its name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import DataError
from larvatus.core.settings import Settings
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Place, Row, nul_in, source_name
from larvatus.data.text.archives import ARCHIVE_ERRORS, COMPRESSIONS, count_batch, parquet_limit, string_columns
from larvatus.data.text.columns import has_header
from larvatus.data.text.delimited import MOST_COLUMNS, delimited_rows, delimiter_of
from larvatus.data.text.streams import json_records, numbered_lines, open_seekable

ROWS = 1_024
"""Rows held at a time."""


def parquet_rows(name: str) -> Iterator[tuple[Place, Row]]:
    """The rows of a file, numbered from 1."""
    with open_seekable(name) as stream:
        try:
            schema = pq.read_schema(stream)
            file = pq.ParquetFile(stream, memory_map=False, read_dictionary=string_columns(schema))
            plain = [field.name for field in schema if _is_plain(field.type)]
            if twice := [column for column, count in Counter(schema.names).items() if count > 1]:
                raise DataError(f"{source_name(name)}: two columns are named {twice[0]!r}; rename one")
            classes = {column: names for column, names in _classes(schema.metadata).items() if column in plain}
            number, growth = 0, parquet_limit(source_name(name), stream.seek(0, os.SEEK_END))
            for batch in file.iter_batches(batch_size=ROWS, columns=plain):
                count_batch(growth, batch)
                for row in _records(batch, source_name(name), number):
                    number += 1
                    if column := nul_in(row):
                        raise DataError(f"{source_name(name)}:{number}: {column} holds a NUL byte; repair it")
                    row.update({column: _named(row[column], names) for column, names in classes.items()})
                    yield Place(source_name(name), number), row
        except (pa.ArrowException, *ARCHIVE_ERRORS, UnicodeDecodeError) as broken:
            raise DataError(f"{source_name(name)} is no whole Parquet file: {broken}") from broken


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


Format = Literal["csv", "tsv", "jsonl", "parquet"]

SAMPLE = 10_000
"""Rows that are looked at before the columns are guessed."""
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}


class TableOptions(Settings):
    format: Format | None = None
    """None: by the file's name, then by its first line."""
    header: bool | None = None
    """Whether the first row of CSV and TSV names the columns; None: found out."""
    quoting: bool | None = None
    """Whether quotation marks hold cells together; None: in CSV, not in TSV."""
    delimiter: str | None = None
    """One character; None: a tab in TSV; comma, semicolon or tab in CSV, whichever the first line has most."""


@dataclass(frozen=True)
class LabelledTable:
    name: str
    """As it is shown to people."""
    format: Format
    columns: tuple[str, ...]
    header: bool
    """Whether the file named its columns itself."""
    sample: tuple[Row, ...]
    """The first rows, to look at."""
    rows: Iterator[tuple[Place, Row]]
    """All rows, once."""


def ending(name: str) -> str:
    """What a file's name ends with, compression left aside: ``.tsv`` of ``train.tsv.xz``."""
    lower = name.lower()
    for compression in COMPRESSIONS:
        lower = lower.removesuffix(compression)
    last = lower.replace("\\", "/").rsplit("/", 1)[-1]
    return "." + last.rsplit(".", 1)[-1] if "." in last else ""


def open_table(
    name: str,
    options: TableOptions = TableOptions(),
    problems: Problems | None = None,
    lines: Iterator[tuple[int, str]] | None = None,
) -> LabelledTable:
    """Open a table: its columns, a sample of its rows, and all of them. `lines`: of a file that is open already."""
    format = options.format or ENDINGS.get(ending(name))
    if format == "parquet":
        return _sampled(name, "parquet", True, parquet_rows(name))
    lines = lines or numbered_lines(name)
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{source_name(name)} is empty; give a file with labelled examples")
    format = format or _told_by(first[1], name)
    lines = chain([first], lines)
    if format == "jsonl":
        return _sampled(name, "jsonl", True, _jsonl(name, lines, problems), problems)
    delimiter = options.delimiter or delimiter_of(format, first[1])
    if len(delimiter) != 1:
        raise DataError(f"delimiter {delimiter!r} has {len(delimiter)} characters; give one")
    quoting = options.quoting if options.quoting is not None else format == "csv"

    def refuse(kind: str, line: int, message: str) -> None:
        fault(problems, kind, Place(source_name(name), line), message)

    cells = delimited_rows(lines, delimiter=delimiter, quoting=quoting, fault=refuse)
    return _delimited(name, format, cells, options.header, problems)


def _told_by(line: str, name: str) -> Format:
    if line.lstrip().startswith(("{", "[")):
        return "jsonl"
    if "\t" in line:
        return "tsv"
    if "," in line or ";" in line:
        return "csv"
    raise DataError(
        f"{source_name(name)}: neither its name nor its first line tells its format; give csv, tsv or jsonl"
    )


def _sampled(
    name: str, format: Format, header: bool, rows: Iterator[tuple[Place, Row]], problems: Problems | None = None
) -> LabelledTable:
    sample = list(islice(rows, SAMPLE))
    columns = tuple(dict.fromkeys(column for _, row in sample for column in row))
    if not sample:
        raise DataError(
            f"{source_name(name)} has no rows that can be read{cause(problems)}; give a file with labelled examples"
        )
    return LabelledTable(
        source_name(name), format, columns, header, tuple(row for _, row in sample), chain(sample, rows)
    )


def _delimited(
    name: str, format: Format, cells: Iterator[tuple[int, list[str]]], header: bool | None, problems: Problems | None
) -> LabelledTable:
    head = list(islice(cells, SAMPLE + 1))
    if not head:
        raise DataError(
            f"{source_name(name)} has no rows that can be read{cause(problems)}; give a file with labelled examples"
        )
    named = has_header([row for _, row in head]) if header is None else header
    line, first = head[0]
    width = len(first)
    columns = tuple(cell.strip() for cell in first) if named else tuple(str(n) for n in range(1, width + 1))
    if width > MOST_COLUMNS:
        raise DataError(
            f"{source_name(name)}:{line}: {width:,} columns; more than {MOST_COLUMNS:,} are no labelled examples"
        )
    if named and len(set(columns)) < width:
        twice = next(column for column in columns if columns.count(column) > 1)
        raise DataError(f"{source_name(name)}:{line}: two columns are named {twice!r}; rename one")

    def rows() -> Iterator[tuple[Place, Row]]:
        for number, row in chain(head[1:] if named else head, cells):
            place = Place(source_name(name), number)
            if len(row) != width:
                fault(problems, "wrong number of columns", place, f"{len(row)} columns, but the first row has {width}")
            else:
                yield place, dict(zip(columns, row, strict=True))

    return _sampled(name, format, named, rows(), problems)


def _jsonl(name: str, lines: Iterator[tuple[int, str]], problems: Problems | None) -> Iterator[tuple[Place, Row]]:
    for number, written in json_records(((number, line.encode()) for number, line in lines), source_name(name)):
        place = Place(source_name(name), number)
        try:
            record = msgspec.json.decode(written)
        except (ValueError, RecursionError) as broken:
            fault(problems, "broken JSON", place, f"broken JSON: {broken}")
            continue
        if isinstance(record, dict):
            if b"\\u0000" in written and (column := nul_in(record)):
                fault(problems, "NUL byte", place, f"{column} holds a NUL byte; repair it")
            else:
                yield place, record
        else:
            fault(problems, "no JSON object", place, "the line is no JSON object; write one object a line")
