"""The formats that `readers.py` knows, each a generator of documents: plain text, JSONL, Parquet; CSV and TSV are in
`delimited.py`.

A bad record is raised as ``path:line: what``, or counted and skipped (`RecordFaults`). Lines and documents are bounded,
so a file without a line break, or an archive that unpacks to terabytes, cannot fill the memory.

Where no field of JSON records, or column of a Parquet file, is named, one called text is used. Where none of the first
records has it, the field is guessed from them as in a table, and reported (`columns.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import DataError, UsageError
from larvatus.core.files import as_text
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.archives import ARCHIVE_ERRORS, UnpackLimit, count_batch, parquet_limit, string_columns
from larvatus.data.text.columns import SampledRows, check_columns, document_column, find_column, note_column
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.streams import HINT, LONGEST_LINE, UTF_8, json_records, open_bytes, open_seekable, reencoded
from larvatus.data.text.words import is_language

LONGEST_DOCUMENT = 16 * 2**20
"""Characters after which a plain-text document continues as another one, at the next line: memory stays bounded."""

ROWS = 1_024
"""Rows of a Parquet file held at a time."""

SAMPLE_RECORDS = 1_000
SAMPLE_BYTES = 16 * 2**20
"""Bytes of records that are looked at before the field is guessed."""
SAMPLE_ROWS = 64
"""Rows of Parquet that are looked at; its cells have no limit but this."""

Records = Iterator[tuple[int, bytes]]
_MISSING = object()


class BadRecord(Exception):
    """A fault of one line or record: the reason it is counted under, and what to say about it."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


@dataclass(frozen=True)
class RecordFaults:
    name: str
    options: ReadOptions
    skipped: Skipped

    def at(self, line: int) -> _Place:
        """Run what may find a fault in one record: it is raised with its place, or counted and skipped."""
        return _Place(self, line)


@dataclass(frozen=True)
class _Place:
    faults: RecordFaults
    line: int

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, fault: BaseException | None, _trace: object) -> bool:
        if not isinstance(fault, BadRecord):
            return False
        message = f"{self.faults.name}:{self.line}: {fault}"
        if self.faults.options.on_bad == "fail":
            raise DataError(f"{message}; repair it, or pass over such lines with --on-bad skip") from fault
        self.faults.skipped.add(fault.reason, message)
        return True


@contextmanager
def open_text(name: str, options: ReadOptions) -> Iterator[IO[bytes]]:
    """The same as UTF-8, whatever the encoding of the file."""
    with open_bytes(name) as stream:
        yield reencoded(stream, UTF_8 if options.encoding is msgspec.UNSET else options.encoding, name)


def read_lines(name: str, faults: RecordFaults) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a file, without their line breaks. A file that breaks off is no bad line: it is refused."""
    with open_text(name, faults.options) as stream:
        number = 0
        while True:
            number += 1
            try:
                line = stream.readline(LONGEST_LINE + 1)
                too_long = len(line) > LONGEST_LINE
                with faults.at(number):
                    if too_long:
                        raise BadRecord("line too long", f"the line has more than {LONGEST_LINE:,} bytes")
                while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST_LINE + 1)  # the rest of it; what follows is read
            except ARCHIVE_ERRORS as fault:
                raise DataError(f"{name}:{number}: the file breaks off here ({fault}); fetch it again") from fault
            if too_long:
                continue
            if not line:
                return
            yield number, line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n") if number == 1 else line.rstrip(b"\r\n")


def decode_line(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as fault:
        where = f"byte 0x{line[fault.start]:02x} at {fault.start + 1} is not UTF-8"
        raise BadRecord("bad UTF-8", f"{where}; if it is in another encoding, name it: {HINT}") from fault
    if "\0" in text:
        raise BadRecord("NUL byte", f"NUL byte at {text.index(chr(0)) + 1}")
    return text


def read_text(name: str, options: ReadOptions, skipped: Skipped) -> Iterator[Document]:
    """Plain text: documents end at blank lines, or with the file. A bad line is skipped, its document continues."""
    faults, source = RecordFaults(name, options, skipped), as_text(name)
    held: list[str] = []
    nothing = (None,) * len(options.further_fields)
    first, size = 1, 0
    start = following = 0  # characters before the document, and before the next line
    for number, line in read_lines(name, faults):
        text = None
        with faults.at(number):
            text = decode_line(line)
        here = following
        following += len(line.decode(errors="replace") if text is None else text) + 1
        if text is None:
            continue
        ends = options.split == "blank-line" and (not line or line.isspace())
        if held and (ends or size > LONGEST_DOCUMENT):
            yield Document("\n".join(held), source, first, options.language, start=start, metadata=nothing)
            held, size = [], 0
        if ends or not (text or held):
            continue
        first, start = (first, start) if held else (number, here)
        held.append(text)
        size += len(text) + 1
    if held:
        yield Document("\n".join(held), source, first, options.language, start=start, metadata=nothing)


def read_jsonl(name: str, options: ReadOptions, skipped: Skipped) -> Iterator[Document]:
    """JSON objects, one a line or spread over lines, in an array or not (`streams.py`)."""
    faults = RecordFaults(name, options, skipped)
    records = json_records(read_lines(name, faults), name)
    if not options.names_column:
        options, records = guess_field(name, records, options)
    for number, record in records:
        document = None
        with faults.at(number):
            document = make_document(_record(record), name, number, options)
        if document:
            yield document


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        text = decode_line(line)  # bad UTF-8 and NUL have names of their own
        try:
            record = json.loads(text)  # takes a lone surrogate, which is then refused by its place in the text
        except (ValueError, RecursionError) as fault:
            raise BadRecord("broken JSON", f"broken JSON: {fault}") from fault
    if not isinstance(record, dict):
        raise BadRecord("not an object", "the line is no JSON object")
    return record


def read_parquet(name: str, options: ReadOptions, skipped: Skipped) -> Iterator[Document]:
    """A column of strings, some rows at a time. No other column is opened, and none that is not plain text."""
    faults = RecordFaults(name, options, skipped)
    with open_seekable(name) as stream:
        try:
            schema = pq.read_schema(stream)
            file = pq.ParquetFile(stream, memory_map=False, read_dictionary=string_columns(schema))
            row, growth = 0, parquet_limit(name, stream.seek(0, os.SEEK_END))
            options = parquet_column(name, file, options, growth)
            wanted = [column for column in (options.text_field, options.language_field, options.label_field) if column]
            _refuse_objects(name, schema, wanted)
            wanted += _scalar_columns(name, schema, options.further_fields, wanted)
            for batch in file.iter_batches(batch_size=ROWS, columns=wanted):
                count_batch(growth, batch)
                for index in range(batch.num_rows):
                    row += 1
                    document = None
                    with faults.at(row):
                        document = make_document(_row(batch, index), name, row, options)
                    if document:
                        yield document
        except (pa.ArrowException, OSError) as fault:
            raise DataError(f"{name} is no whole Parquet file: {fault}") from fault


def _refuse_objects(name: str, schema: Any, wanted: list[str]) -> None:
    for column in wanted:
        if column not in schema.names:
            raise UsageError(f"{name} has no column {column!r} (it has {', '.join(schema.names)}); name one of these")
        if schema.names.count(column) > 1:
            raise DataError(f"{name} has {schema.names.count(column)} columns {column!r}; leave one of them")
        kind = schema.field(column).type
        if not _is_string(kind):
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            raise DataError(
                f"{name}: column {column!r} holds {kind}, not strings; nothing else is opened, objects least of all"
            )


def _scalar_columns(name: str, schema: Any, fields: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Columns of metadata that are read in addition: strings, numbers, truth values or times."""
    check_columns(as_text(name), schema.names, fields, option="--metadata")
    for field in fields:
        kind = schema.field(field).type
        if not (_is_string(kind) or pa.types.is_primitive(kind)):
            raise DataError(f"{name}: column {field!r} holds {kind}, not text or numbers; do not name it")
    return [field for field in dict.fromkeys(fields) if field not in wanted]


def _row(batch: Any, index: int) -> dict[str, Any]:
    try:
        return {column: batch.column(place)[index].as_py() for place, column in enumerate(batch.schema.names)}
    except UnicodeDecodeError as fault:
        raise BadRecord("bad UTF-8", f"the text is not UTF-8 ({fault.reason})") from fault


def make_document(record: dict[str, Any], name: str, number: int, options: ReadOptions) -> Document:
    text = record.get(options.text_field, _MISSING)
    if text is _MISSING:
        raise BadRecord("missing text", f"no field {options.text_field!r}")
    if text is None:
        text = ""  # an empty cell, which is counted
    if not isinstance(text, str):
        raise BadRecord("text is no string", f"field {options.text_field!r} is {type(text).__name__}, not a string")
    if "\0" in text:
        raise BadRecord("NUL byte", f"NUL byte at {text.index(chr(0)) + 1}")
    try:
        refuse_surrogates(text, "the text")
    except DataError as fault:
        raise BadRecord("lone surrogate", str(fault)) from fault
    language = record.get(options.language_field) if options.language_field else None
    if language is not None and not isinstance(language, str):
        raise BadRecord("language is no string", f"field {options.language_field!r} is {type(language).__name__}")
    if language and not is_language(language):
        shown = f"{language[:40]!r} is no language code"
        raise BadRecord("no language code", f"field {options.language_field!r}: {shown} such as en, sw or zh-Hant")
    label = _label(record, options.label_field) if options.label_field else None
    metadata = tuple(_metadata(record, field) for field in options.further_fields)
    return Document(text, as_text(name), number, language or options.language, label, metadata=metadata)


def _metadata(record: dict[str, Any], field: str) -> str | None:
    value = record.get(field)
    if isinstance(value, dict | list | bytes):
        raise BadRecord("metadata is no scalar", f"field {field!r} is {type(value).__name__}, not a string or a number")
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _label(record: dict[str, Any], field: str) -> str | None:
    label = record.get(field)
    if label is not None and (isinstance(label, bool) or not isinstance(label, str | int | float)):
        raise BadRecord("label is no string", f"field {field!r} is {type(label).__name__}, not a string or a number")
    return None if label is None else str(label)


def guess_field(name: str, records: Records, options: ReadOptions) -> tuple[ReadOptions, Records]:
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


def parquet_column(name: str, file: Any, options: ReadOptions, growth: UnpackLimit) -> ReadOptions:
    """Options that name the text column of a Parquet file; rows that are looked at count as unpacked."""
    schema = file.schema_arrow
    if options.names_column:
        return options.with_text(find_column(as_text(name), schema.names, options.text_field))
    if options.text_field in schema.names:
        return options
    strings = [field.name for field in schema if _is_string(field.type) and schema.names.count(field.name) == 1]
    if not strings:
        raise DataError(f"{as_text(name)}: no column holds text (it has {', '.join(schema.names)}); give another file")
    batch = next(file.iter_batches(batch_size=SAMPLE_ROWS, columns=strings), None)
    if batch is not None:
        count_batch(growth, batch)
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
