"""Tables of examples: the loops over files and rows that the readers of tasks share.

    examples, source, read_as = read_files(paths, read_file, give="give texts", problems=problems)
    for example in read_unlabelled("-", "jsonl", columns_of, examples_of, things="texts", say=print): …

A row that cannot be used is a fault: raised with its place, or collected in `problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Place, Row
from larvatus.data.labelled.tables import Format, LabelledTable, TableOptions, open_table, path_strings
from larvatus.data.labelled.texts import BadCell, TextFormat

TABLES: dict[TextFormat, Format] = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "parquet": "parquet"}
"""Formats of plain files that have columns."""
E = TypeVar("E")


def read_files(
    paths: Paths, read_file: Callable[[str], tuple[str, str, Iterable[E]]], *, give: str, problems: Problems | None
) -> tuple[list[E], str, str]:
    """Examples of one file or several, the files' names, and what was read; `give` says what to give for none.

    `read_file` gives the name of a file, the columns that it reads, and its examples.
    """
    examples: list[E] = []
    names, columns = [], []
    for path in path_strings(paths):
        name, read_as, part = read_file(path)
        examples += part
        names.append(name)
        columns.append(read_as)
    source = ", ".join(names)
    if not examples:
        raise DataError(f"{source}: no row can be used{cause(problems)}; {give}")
    return examples, source, f"read as: {'; '.join(dict.fromkeys(columns))}"


class TableColumns(Protocol):
    """The columns of a table that a reader has chosen."""

    def describe(self) -> str:
        """``query = question, passage = sentence``"""


C = TypeVar("C", bound=TableColumns)


def read_tables(
    paths: Paths,
    options: TableOptions,
    columns_of: Callable[[LabelledTable], C],
    examples_of: Callable[[Row, C, Place], Iterable[E]],
    *,
    give: str,
    problems: Problems | None,
) -> tuple[list[E], str, str]:
    """`read_files` of tables, whose rows become examples by the columns that each table has."""

    def read_file(path: str) -> tuple[str, str, Iterator[E]]:
        table = open_table(path, options, problems)
        columns = columns_of(table)
        return table.name, columns.describe(), valid_rows(table, columns, examples_of, problems)

    return read_files(paths, read_file, give=give, problems=problems)


def valid_rows(
    table: LabelledTable, columns: C, examples_of: Callable[[Row, C, Place], Iterable[E]], problems: Problems | None
) -> Iterator[E]:
    """The examples of all rows; `examples_of` raises `BadCell` for a row that has none."""
    for place, row in table.rows:
        try:
            yield from examples_of(row, columns, place)
        except BadCell as bad:
            fault(problems, bad.kind, place, str(bad))


def read_unlabelled(
    name: str,
    format: TextFormat | None,
    columns_of: Callable[[LabelledTable], C],
    examples_of: Callable[[Row, C, Place], Iterable[E]],
    *,
    things: str,
    say: Callable[[str], None],
) -> Iterator[E]:
    """Examples to predict for, one at a time, of a table, or of standard input for ``-``.

    Formats without columns are refused: `things` are not read from them.
    """
    if format is not None and format not in TABLES:
        raise DataError(f"{things} are read from csv, tsv, jsonl or parquet, not {format}")
    table = open_table(name, TableOptions(format=None if format is None else TABLES[format]))
    columns = columns_of(table)
    say(f"{table.name}: read as: {columns.describe()}")
    yield from valid_rows(table, columns, examples_of, None)


def row_id(row: Row, column: str | None) -> str | None:
    """The id of a row, as text."""
    value = row.get(column) if column else None
    return None if value is None else str(value)
