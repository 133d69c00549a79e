"""Texts of a file one by one, for commands that take a text a line: rows of a table, or lines of plain text.

    for place, text in single_texts("reviews.csv", column="review"): ...        # ("reviews.csv:2", "Not bad.")

Tables (CSV, TSV, JSONL, Parquet) are read by columns, as documents of a corpus are (`readers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from larvatus.core.errors import UsageError
from larvatus.data.text.column_notes import note_blank_rows
from larvatus.data.text.documents import ReadOptions, Skipped
from larvatus.data.text.encodings import UTF_8, encoding_in_use
from larvatus.data.text.lines import numbered_lines
from larvatus.data.text.readers import has_columns, read_documents


def single_texts(name: str, column: str | None = None) -> Iterator[tuple[str, str]]:
    """Texts that are not blank, each with its place. `column` names the text column of a table; None: guessed."""
    if has_columns(name):
        yield from _rows(name, column)
        return
    shown = "standard input" if name == "-" else name
    if column is not None:
        raise UsageError(f"{shown} is plain text, which has no columns; leave --text out, or name a table")
    for number, line in numbered_lines(name):
        if line.strip():
            yield f"{shown}:{number}", line


def _rows(name: str, column: str | None) -> Iterator[tuple[str, str]]:
    encoding = encoding_in_use()
    options = ReadOptions(
        encoding=msgspec.UNSET if encoding == UTF_8 else encoding,
    ).named(column)
    skipped = Skipped()
    for document in read_documents([name], options=options, skipped=skipped):
        yield f"{document.source}:{document.line}", document.text
    if skipped.blank:
        note_blank_rows(name, skipped.blank)
