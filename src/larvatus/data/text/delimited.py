"""Rows of CSV and TSV files: numbered lines become numbered rows of cells.

    rows = delimited_rows(numbered_lines("a.csv"), delimiter=";", quoting=True, fault=refuse)

CSV is quoted as RFC 4180 says, so a cell may hold line breaks. In TSV a quotation mark is a character, as GLUE's files
need. Labelled tables (`data/labelled/tables.py`) and documents of a corpus (`data/text/table_documents.py`) are both
read here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

from larvatus.data.text.records import LONGEST_LINE

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
    """Rows, each with the line where it begins; with `empty` those of empty cells too. Blank lines are passed over."""
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
