"""Rows of CSV and TSV files: numbered lines become numbered rows of cells.

    rows = delimited_rows(numbered_lines("a.csv"), delimiter=";", quoting=True, fault=refuse)

CSV is quoted as in RFC 4180, so a cell may hold line breaks. In TSV a quotation mark is a character, as GLUE's files
need. Labelled tables (`data/labelled/tables.py`) and documents of a corpus (`data/text/delimited.py`) are both
read here.

Documents from the rows of CSV and TSV files: a column holds the text, one document a row.

    for document in read_delimited("csv", "news.csv.gz", ReadOptions(), Skipped()): ...

The column is the one that `ReadOptions.text_field` names, otherwise it is guessed from the header and the first rows
(`columns.py`) and reported (`columns.py`). Rows stream: the sample that the guess is made from is bounded in
rows and in characters.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import chain

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.data.text.columns import SampledRows, check_columns, document_column, find_column, has_header, note_column
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.records import BadRecord, RecordFaults, decode_line, make_document, read_lines
from larvatus.data.text.streams import LONGEST_LINE

MOST_COLUMNS = 4_096
"""Each is looked at to find out what it holds."""
DELIMITERS = ",;\t"

Fault = Callable[[str, int, str], None]
"""Called with kind, line and message of a row that cannot be read; it raises, or counts the row as skipped."""

# The module's own limit, 128 kB a cell, refuses texts that we take; a line is bounded where it is read.
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))


def delimiter_of(format: str, first_line: str) -> str:
    """A tab in TSV; in CSV whichever of comma, semicolon and tab the first line has most.

    >>> delimiter_of("csv", "id;text;label")
    ';'
    """
    return "\t" if format == "tsv" else max(DELIMITERS, key=first_line.count)


def delimited_rows(
    lines: Iterator[tuple[int, str]], *, delimiter: str, quoting: bool, fault: Fault, empty: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Rows, each with the line where it begins; with `empty` those of empty cells too. Blank lines are skipped."""
    rows = _quoted(lines, delimiter, fault) if quoting else _split(lines, delimiter)
    return rows if empty else ((number, row) for number, row in rows if any(cell.strip() for cell in row))


def _split(lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        if line.strip() or delimiter in line:
            yield number, line.split(delimiter)


def _quoted(lines: Iterator[tuple[int, str]], delimiter: str, fault: Fault) -> Iterator[tuple[int, list[str]]]:
    begun: list[int] = []  # lines that the row being read is made of

    def fed() -> Iterator[str]:
        for number, line in lines:
            begun.append(number)
            yield line + "\n"

    reader = csv.reader(fed(), delimiter=delimiter, strict=True)
    while True:
        begun.clear()
        try:
            row = next(reader, None)
        except csv.Error as broken:
            fault("broken quoting", begun[0], f"broken quoting ({broken}); repair it, or switch quoting off")
            continue
        if row is None:
            return
        if len(row) > 1 or any(cell.strip() for cell in row):
            yield begun[0], row


SAMPLE_ROWS = 10_000
SAMPLE_CHARACTERS = 16 * 2**20
"""Characters of the rows that are looked at before the text column is guessed."""

Rows = Iterator[tuple[int, list[str]]]


def read_delimited(format: str, name: str, options: ReadOptions, skipped: Skipped) -> Iterator[Document]:
    """Documents of a CSV or TSV file; a row that cannot be read is a fault of its line."""
    faults = RecordFaults(name, options, skipped)

    def fault(kind: str, line: int, message: str) -> None:
        with faults.at(line):
            raise BadRecord(kind, message)

    lines = _decoded_lines(name, faults)
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        return
    rows = delimited_rows(
        chain([first], lines),
        delimiter=delimiter_of(format, first[1]),
        quoting=format == "csv",
        fault=fault,
        empty=True,
    )
    head, ended = _sampled(rows)
    if not head:
        return
    header = has_header([row for _, row in head]) or _is_named(options, head[0][1])
    columns = _columns(name, head[0], header=header)
    text = _text_column(name, options, columns, head, header=header, ended=ended)
    reading = _with_columns(name, options, columns, text)
    for number, row in chain(head[1:] if header else head, rows):
        if len(row) != len(columns):
            fault("wrong number of columns", number, f"{len(row)} columns, but the first row has {len(columns)}")
            continue
        document = None
        with faults.at(number):
            document = make_document(dict(zip(columns, row, strict=True)), name, number, reading)
        if document:
            yield document


def _is_named(options: ReadOptions, first: list[str]) -> bool:
    """Whether the first row holds the column's name that the user gave: then it is a header, however it looks."""
    return options.names_column and options.text_field in [cell.strip() for cell in first]


def _decoded_lines(name: str, faults: RecordFaults) -> Iterator[tuple[int, str]]:
    for number, line in read_lines(name, faults):
        text = None
        with faults.at(number):
            text = decode_line(line)
        if text is not None:
            yield number, text


def _sampled(rows: Rows) -> tuple[list[tuple[int, list[str]]], bool]:
    """The first rows, and whether there are no more."""
    head: list[tuple[int, list[str]]] = []
    size = 0
    for number, row in rows:
        head.append((number, row))
        size += sum(map(len, row))
        if len(head) > SAMPLE_ROWS or size > SAMPLE_CHARACTERS:
            return head, False
    return head, True


def _columns(name: str, first: tuple[int, list[str]], *, header: bool) -> tuple[str, ...]:
    line, cells = first
    if len(cells) > MOST_COLUMNS:
        raise DataError(f"{name}:{line}: {len(cells):,} columns; a table of texts has {MOST_COLUMNS:,} at most")
    if not header:
        return tuple(str(number) for number in range(1, len(cells) + 1))
    columns = tuple(cell.strip() for cell in cells)
    if twice := next((column for column in columns if columns.count(column) > 1), None):
        raise DataError(f"{name}:{line}: two columns are named {twice!r}; rename one")
    return columns


def _text_column(
    name: str,
    options: ReadOptions,
    columns: tuple[str, ...],
    head: list[tuple[int, list[str]]],
    *,
    header: bool,
    ended: bool,
) -> str:
    """The column that was named, or the guess, which is reported."""
    shown = as_text(name)
    if options.names_column:
        return find_column(shown, columns, options.text_field)
    body = [row for _, row in (head[1:] if header else head)]
    sample = [dict(zip(columns, row, strict=True)) for row in body if len(row) == len(columns)]
    if not sample:
        raise DataError(f"{shown} has a header and no rows; give a table with texts")
    text = document_column(SampledRows(shown, columns, header, sample))
    count = f"{len(body):,} {'row' if len(body) == 1 else 'rows'}" if ended else f"over {len(body):,} rows"
    note_column(shown, count, text, columns, header=header)
    return text


def _with_columns(name: str, options: ReadOptions, columns: tuple[str, ...], text: str) -> ReadOptions:
    """The same options with names of columns that the table has."""
    for field in (options.language_field, options.label_field):
        if field is not None:
            find_column(as_text(name), columns, field)
    check_columns(as_text(name), columns, options.further_fields, option="--metadata")
    return options.with_text(text)
