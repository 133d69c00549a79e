"""Tables: CSV, TSV, JSONL and Parquet as rows of named cells, each with its line, and which column is text or label.

    table = open_table("train.tsv.xz")
    table.columns                     # ('index', 'sentence1', 'sentence2', 'label')
    for place, row in table.rows: ...
    find_columns(table).describe(table)                   # text = sentence1, pair = sentence2, label = label

CSV is quoted as in RFC 4180, so a cell may hold line breaks; in TSV a quotation mark is a character, as GLUE's files
need. A header is found by its names and by how it differs from the rows below; without one, columns are "1", "2", ….
Of Parquet only plain columns (text, numbers, lists and records of them) are opened: objects may be code. Files of the
`datasets` library name the class of each number in their metadata.

A column is given by name or number, or guessed and reported. Names come first (`data/text/columns.py`): premise and
hypothesis, sentence1 and sentence2, label, score, Quality, …. Where names do not tell, contents do: the column of the
longest values is the text, a second one like it its pair, and the column of the fewest values that change from row to
row the label. So CoLA's four columns without a header are read as ``text = column 4, label = column 2``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import DataError, did_you_mean
from larvatus.core.ranges import digits
from larvatus.core.settings import Settings
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Place, Row, nul_in, source_name
from larvatus.data.text.archives import ARCHIVE_ERRORS, COMPRESSIONS, count_batch, parquet_limit, string_columns
from larvatus.data.text.columns import (
    IDS,
    LABELS,
    all_hold,
    column_values,
    first_named,
    has_header,
    is_numeral,
    normalise_name,
    text_columns,
)
from larvatus.data.text.delimited import MOST_COLUMNS, delimited_rows, delimiter_of
from larvatus.data.text.streams import json_records, numbered_lines, open_seekable

FEW = 200
"""Classes beyond which a column is not guessed to be the label."""


Paths = str | Path | Sequence[str | Path]
Format = Literal["csv", "tsv", "jsonl", "parquet"]

ROWS = 1_024
"""Rows of Parquet held at a time."""
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


def path_strings(paths: Paths) -> list[str]:
    """One path or several, as strings."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    names = [os.fspath(path) for path in several]
    if not names or not all(names):
        raise DataError("no file was named; give a file with labelled examples, or - for standard input")
    return names


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
        f"{source_name(name)}: neither its name nor its first line shows its format; give csv, tsv or jsonl"
    )


def _no_rows(name: str, problems: Problems | None) -> DataError:
    way = "give a file with labelled examples"
    return DataError(f"{source_name(name)} has no rows that can be read{cause(problems)}; {way}")


def _sampled(
    name: str, format: Format, header: bool, rows: Iterator[tuple[Place, Row]], problems: Problems | None = None
) -> LabelledTable:
    sample = list(islice(rows, SAMPLE))
    columns = tuple(dict.fromkeys(column for _, row in sample for column in row))
    if not sample:
        raise _no_rows(name, problems)
    return LabelledTable(
        source_name(name), format, columns, header, tuple(row for _, row in sample), chain(sample, rows)
    )


def _delimited(
    name: str, format: Format, cells: Iterator[tuple[int, list[str]]], header: bool | None, problems: Problems | None
) -> LabelledTable:
    head = list(islice(cells, SAMPLE + 1))
    if not head:
        raise _no_rows(name, problems)
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
    """The rows of a batch, after `before` rows of other batches; one that is not UTF-8 is named."""
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
    """Names of the classes of each column, if the file has them."""
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


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns by name, or by number from 1; None: guessed. Where only `text` is given, there is no pair."""

    text: str | int | None = None
    pair: str | int | None = None
    label: str | int | None = None
    id: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """The columns of one table, by name."""

    text: str
    pair: str | None
    label: str | None
    id: str | None

    def describe(self, table: LabelledTable, said_of_label: str = "") -> str:
        """``text = sentence1, pair = sentence2, label = label (2 classes)``"""
        parts = {"text": self.text, "pair": self.pair, "label": self.label}
        prefix = "" if table.header else "column "
        told = [f"{role} = {prefix}{name}" for role, name in parts.items() if name is not None]
        return ", ".join(told) + (f" ({said_of_label})" if said_of_label and self.label is not None else "")


def find_columns(table: LabelledTable, asked: Columns = Columns(), *, labelled: bool = True) -> ColumnRoles:
    """The requested columns, and the others as guessed. Without `labelled` no label is looked for."""
    text, pair, label, identifier = (
        None if name is None else named_column(table, name, role)
        for role, name in (("text", asked.text), ("pair", asked.pair), ("label", asked.label), ("id", asked.id))
    )
    named = table.columns if table.header else ()
    identifier = identifier or first_named(IDS, named)
    if labelled and label is None:
        label = first_named(LABELS, tuple(name for name in named if name not in (text, pair)))
    if text is None:
        text, guessed = text_columns(table, taken={name for name in (pair, label, identifier) if name})
        pair = pair or guessed
    if labelled and label is None:
        label = _label(table, taken={name for name in (text, pair, identifier) if name})
    return ColumnRoles(text=text, pair=pair, label=label if labelled else None, id=identifier)


def named_column(table: LabelledTable, asked: str | int, role: str) -> str:
    """The column of that name, or of that number from 1."""
    columns = table.columns
    if isinstance(asked, str) and asked in columns:
        return asked
    if isinstance(asked, int) or asked.isdigit():
        number = asked if isinstance(asked, int) else digits(asked) or 0
        if not 1 <= number <= len(columns):
            raise DataError(f"{table.name} has {len(columns)} columns, no column {asked!s:.40} for the {role}")
        return columns[number - 1]
    close = [column for column in columns if normalise_name(column) == normalise_name(asked)]
    hint = f"; did you mean {close[0]}?" if close else did_you_mean(asked, columns)
    if not table.header:
        hint = f"; it has no header: give a number, 1 to {len(columns)}"
    raise DataError(f"{table.name} has no column {asked!r} for the {role}{hint}")


def _label(table: LabelledTable, taken: set[str]) -> str:
    rest = [name for name in table.columns if name not in taken]
    candidates = [name for name in rest if _could_be_label(table, name)] or (rest if len(rest) == 1 else [])
    if not candidates:
        numbers = [name for name in rest if all_hold(table, name, is_numeral)]
        candidates = [name for name in numbers if all_hold(table, name, _has_point)]
    if not candidates:
        raise DataError(
            f"{table.name}: no column looks like a label (it has {', '.join(table.columns)}); name it: --label COLUMN"
        )
    return min(candidates, key=lambda name: (*_rank(table, name), -table.columns.index(name)))


def _has_point(value: Any) -> bool:
    return "." in value if isinstance(value, str) else isinstance(value, float)


def _could_be_label(table: LabelledTable, name: str) -> bool:
    values = column_values(table, name)
    if any(isinstance(value, list) for value in values):
        return all(isinstance(value, list) and all(isinstance(item, str | int) for item in value) for value in values)
    if any(isinstance(value, dict) for value in values):
        return False
    distinct = len(set(values))
    return 2 <= distinct <= max(2, min(FEW, len(values) // 2))


def _rank(table: LabelledTable, name: str) -> tuple[bool, bool, int]:
    """Labels have no empty cells, change from row to row (a source comes in runs), and are few."""
    values = [str(value) for value in column_values(table, name)]
    counts = Counter(values)
    by_chance = 1 - sum((count / len(values)) ** 2 for count in counts.values())
    changes = sum(value != other for value, other in pairwise(values)) / max(1, len(values) - 1)
    return "" in counts or "None" in counts, changes < by_chance / 4, len(counts)
