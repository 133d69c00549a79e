"""Texts without labels, for predictions: plain text a line, tables, words already cut; one at a time, never all.

    for example in read_unlabelled("reviews.csv.xz", words=False):
        example.text, example.place

The format is told by the file's name; standard input is JSONL where its first line begins with a brace, otherwise a
text a line. Labels and tags that a file holds are not read. (CoNLL files are read whole before the first answer.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Literal

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.columns import Columns, find_columns
from larvatus.data.labelled.problems import fault
from larvatus.data.labelled.records import Place, TaggedExample, TextExample, source_name
from larvatus.data.labelled.tables import ENDINGS, Format, LabelledTable, TableOptions, ending, open_table
from larvatus.data.labelled.tagged import format_of, guess_task, list_rows, read_tagged
from larvatus.data.labelled.texts import BadCell, cell_text
from larvatus.data.text.columns import WORDS, first_named
from larvatus.data.text.streams import numbered_lines

TextFormat = Literal["text", "csv", "tsv", "jsonl", "parquet", "conll", "conllu"]
_Told = TextFormat | Literal["table"]
"""A table may be told by its first line."""
Lines = Iterator[tuple[int, str]]


def read_unlabelled(
    name: str,
    *,
    words: bool,
    columns: Columns = Columns(),
    format: TextFormat | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[TextExample | TaggedExample]:
    """The texts of a file, or of standard input for ``-``. `words`: for a tagger, which takes lists of words too.

    `say` is told which columns are read, and how many blank lines were passed over.
    """
    lines: Lines | None = None
    told: _Told | None = format
    if told is None and name == "-":
        told, lines = _told_by(numbered_lines(name), columns)
    told = told or _format_of(name, columns, words=words)
    if told == "conll" or told == "conllu":
        if not words:
            raise DataError(
                f"{source_name(name)} holds words already cut, which a tagger reads; the model classifies texts"
            )
        data = read_tagged(name, format=told, labelled=False)
        say(data.describe())
        return iter(data.examples)
    if told == "text":
        if columns != Columns():
            raise UsageError(
                f"{source_name(name)} is plain text and has no columns; leave --text and --pair-column out"
            )
        return _lines(name, lines or numbered_lines(name), say)
    table_format: Format | None = None if told == "table" else told
    return _rows(open_table(name, TableOptions(format=table_format), lines=lines), columns, words, say)


def _told_by(lines: Lines, columns: Columns) -> tuple[_Told, Lines]:
    head = next(lines, None)
    if head is None:
        return "text", lines
    lines = chain([head], lines)
    if head[1].lstrip().startswith("{"):
        return "jsonl", lines
    return ("text" if columns == Columns() else "table"), lines


def _format_of(name: str, columns: Columns, *, words: bool) -> _Told:
    kind = format_of(name)
    if kind == "brat":
        raise DataError(f"{name} is annotated by brat; give its .txt files with --format text, a text a line")
    if kind == "conllu" or (kind == "conll" and ending(name) != ".tsv"):
        return kind
    if words and ending(name) == ".tsv" and columns == Columns() and guess_task(name) == "tag":
        return "conll"
    if ending(name) in ENDINGS:
        return ENDINGS[ending(name)]
    return "text" if columns == Columns() else "table"


def _lines(name: str, lines: Lines, say: Callable[[str], None]) -> Iterator[TextExample]:
    blank, any_text = 0, False
    for number, line in lines:
        if line.strip():
            any_text = True
            yield TextExample(line, None, None, Place(source_name(name), number))
        else:
            blank += 1
    if not any_text:
        raise DataError(f"{source_name(name)} has no text; give one text a line")
    if blank:
        say(f"{source_name(name)}: {blank:,} blank {'line' if blank == 1 else 'lines'} passed over")


def _rows(
    table: LabelledTable, columns: Columns, words: bool, say: Callable[[str], None]
) -> Iterator[TextExample | TaggedExample]:
    cut = first_named(WORDS, table.columns) if words and columns.text is None else None
    if cut is not None and all(isinstance(row.get(cut), list) for row in table.sample):
        say(f"{table.name}: read as: words = {cut}")
        yield from list_rows(table, cut, None, None)
        return
    chosen = find_columns(table, columns, labelled=False)
    pair = None if words else chosen.pair
    described = chosen.describe(table) if pair == chosen.pair else chosen.describe(table).partition(", pair")[0]
    say(f"{table.name}: read as: {described}")
    for place, row in table.rows:
        try:
            text = cell_text(row, chosen.text)
            second = None if pair is None else cell_text(row, pair)
        except BadCell as bad:
            fault(None, bad.kind, place, str(bad))
            continue
        identifier = row.get(chosen.id) if chosen.id else None
        yield TextExample(text, second, None, place, None if identifier is None else str(identifier))
