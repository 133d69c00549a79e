"""Documents from the rows of CSV and TSV files: a column holds the text, one document a row.

    for document in read_delimited("csv", "news.csv.gz", ReadOptions(), Skipped()): ...

The column is the one that `ReadOptions.text_field` names, otherwise it is guessed from the header and the first rows
(`text_columns.py`) and reported (`column_notes.py`). Rows stream: the sample that the guess is made from is bounded in
rows and in characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.data.text.column_notes import note_column
from larvatus.data.text.delimited import MOST_COLUMNS, delimited_rows, delimiter_of
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.header import has_header
from larvatus.data.text.records import BadRecord, Faults, decoded, document_of, lines_of
from larvatus.data.text.text_columns import SampledRows, chosen_column, document_column

SAMPLE_ROWS = 10_000
SAMPLE_CHARACTERS = 16 * 2**20
"""Characters of the rows that are looked at before the text column is guessed."""

Rows = Iterator[tuple[int, list[str]]]


def read_delimited(format: str, name: str, options: ReadOptions, skipped: Skipped) -> Iterator[Document]:
    """Documents of a CSV or TSV file; a row that cannot be read is a fault of its line."""
    faults = Faults(name, options, skipped)

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
            document = document_of(dict(zip(columns, row, strict=True)), name, number, reading)
        if document:
            yield document


def _is_named(options: ReadOptions, first: list[str]) -> bool:
    """Whether the first row holds the column's name that the user gave: then it is a header, however it looks."""
    return options.names_column and options.text_field in [cell.strip() for cell in first]


def _decoded_lines(name: str, faults: Faults) -> Iterator[tuple[int, str]]:
    for number, line in lines_of(name, faults):
        text = None
        with faults.at(number):
            text = decoded(line)
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
        return chosen_column(shown, columns, options.text_field)
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
            chosen_column(as_text(name), columns, field)
    return options.with_text(text)
