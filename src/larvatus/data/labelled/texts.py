"""Texts and pairs of texts, labelled or not, from tables and plain text.

    train = read_texts("train.tsv.xz")
    print(train.describe())           # … read as: text = sentence1, pair = sentence2, label = label (2 classes)
    dev = read_texts("dev.tsv.xz", kind=train.kind)

A label is a class, a set of names, or a number; which of them a file holds is an option, or detected. A list is a set
of names, and so is a cell with a separator that the caller gives. Where all are numbers and some are not whole (STS-B's
``3.800``), it is regression; whole numbers are classes, unless regression is requested.

    for example in read_unlabelled("reviews.csv.xz", words=False):          # for predictions: one at a time, never all
        example.text, example.place

The format follows from the file's name; standard input is JSONL where its first line begins with a brace, otherwise a
text a line. Labels and tags of such a file are not read. (CoNLL files are read whole before the first answer.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import (
    OTHER_TYPE,
    Dataset,
    Kind,
    Label,
    Place,
    Row,
    TaggedExample,
    TextExample,
    in_order,
    source_name,
)
from larvatus.data.labelled.tables import (
    ENDINGS,
    ColumnRoles,
    Columns,
    Format,
    LabelledTable,
    Paths,
    TableOptions,
    ending,
    find_columns,
    open_table,
    path_strings,
)
from larvatus.data.labelled.tagged import format_of, guess_task, list_rows, read_tagged
from larvatus.data.text.columns import WORDS, first_named, is_number
from larvatus.data.text.streams import numbered_lines


class BadLabel(Exception):
    """A cell that is no label of its kind; the message has the reason."""


def detect_kind(values: Sequence[Any], separator: str | None = None) -> Kind:
    """What labels are, from all of them."""
    if separator is not None or any(isinstance(value, list) for value in values):
        return "multi-label"
    there = [value for value in values if not is_missing(value)]
    if not all(is_number(str(value)) and not isinstance(value, bool) for value in there):
        return "multi-class"
    return "multi-class" if all(float(value).is_integer() for value in there) else "regression"


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def parse_label(value: Any, kind: Kind, separator: str | None = None) -> Label:
    """One cell as a label; `BadLabel` where it is none."""
    if kind == "multi-label":
        return tuple(sorted({name for name in _names(value, separator) if name}))
    if is_missing(value):
        raise BadLabel("the label is empty")
    if isinstance(value, list | dict):
        raise BadLabel(f"the label is a {'list' if isinstance(value, list) else 'record'}; name another column")
    if kind == "multi-class":
        return _name(value)
    if isinstance(value, bool) or not is_number(str(value)):
        raise BadLabel(f"label {str(value)!r} is no finite number, which regression needs")
    return float(value)


def _names(value: Any, separator: str | None) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [_name(item) for item in value]
    return [part.strip() for part in (_name(value).split(separator) if separator else [_name(value)])]


def _name(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | dict):
        raise BadLabel("a label inside the list is no name")
    return str(value).strip()


OF_WORDS = (".conll", ".conll03", ".conllu", ".conllup", ".iob", ".iob2", ".bio", ".bioes")
"""Endings of files that are never tables of texts."""


def read_texts(
    paths: Paths,
    columns: Columns = Columns(),
    *,
    kind: Kind | None = None,
    separator: str | None = None,
    labelled: bool = True,
    options: TableOptions = TableOptions(),
    problems: Problems | None = None,
) -> Dataset[TextExample]:
    """Texts or pairs with their labels, from CSV, TSV, JSONL or Parquet.

    `kind` None: seen from the labels. `separator` cuts a cell into several labels. Without `labelled` no label is read.
    Empty texts, missing labels and broken rows are faults: raised, or collected in `problems`.
    """
    names = path_strings(paths)
    if separator == "":
        raise UsageError("the separator of labels is empty; give one or more characters, such as |")
    held: list[_Held] = []
    tables: list[tuple[LabelledTable, ColumnRoles]] = []
    for name in names:
        if columns.text is None and ending(name) in OF_WORDS:
            raise DataError(f"{name} holds words with tags, not texts; name its columns to read it so: --text, --label")
        table = open_table(name, options, problems)
        chosen = find_columns(table, columns, labelled=labelled)
        tables.append((table, chosen))
        for place, row in table.rows:
            try:
                text = present_text(row, chosen.text)
                pair = None if chosen.pair is None else present_text(row, chosen.pair)
            except BadCell as bad:
                fault(problems, bad.kind, place, str(bad))
                continue
            identifier = row.get(chosen.id) if chosen.id else None
            label = row.get(chosen.label) if chosen.label else None
            held.append(_Held(text, pair, label, chosen.label, place, None if identifier is None else str(identifier)))
    seen = None
    if labelled:
        seen = kind or detect_kind([row.label for row in held], separator)
    examples = _labelled(held, seen, separator, problems)
    source = ", ".join(table.name for table, _ in tables)
    if not examples:
        raise DataError(f"{source}: no row can be used{cause(problems)}; give labelled examples")
    said = _said(examples, seen)
    read_as = "; ".join(dict.fromkeys(chosen.describe(table, said) for table, chosen in tables))
    return Dataset(tuple(examples), source, f"read as: {read_as}", seen)


MISSING_VALUES = frozenset({"NaN", "nan", "<NA>", "NaT"})
"""How NumPy and pandas write a value that is missing: a cell of this is neither text nor label."""


class BadCell(Exception):
    """A cell that is no text: the kind it is counted under, and what to say."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def type_name(value: Any) -> str:
    """Type of a cell, for messages; of a value in memory that no table can hold, its own."""
    return str(value[OTHER_TYPE]) if isinstance(value, dict) and OTHER_TYPE in value else type(value).__name__


def cell_text(row: Row, column: str) -> str:
    """The text of a cell; `BadCell` where there is none."""
    value = row.get(column)
    if isinstance(value, bool | int | float) and value == value:
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise BadCell("no text", f"{column} is {type_name(value)}, not a text")
    if value is None or not value.strip():
        raise BadCell("empty text", f"{column} is empty; drop the row, or give it a text")
    if "\0" in value:
        raise BadCell("NUL byte", f"{column} holds a NUL byte at character {value.index(chr(0))}; repair it")
    if not value.isascii():
        try:
            refuse_surrogates(value, column)
        except DataError as bad:
            raise BadCell("lone surrogate", str(bad)) from bad
    return value


def present_text(row: Row, column: str) -> str:
    """The text of a cell that is no missing value either."""
    text = cell_text(row, column)
    if text.strip() in MISSING_VALUES:
        raise BadCell("empty text", f"{column} is {text.strip()}, a missing value; drop the row, or give it a text")
    return text


def several_texts(row: Row, column: str) -> list[str]:
    """The texts of a cell: one, a list of them, or none."""
    value = row.get(column)
    if value is None or value == "" or value == []:
        return []
    if isinstance(value, list):
        return [present_text({f"{column}[{number}]": text}, f"{column}[{number}]") for number, text in enumerate(value)]
    return [present_text(row, column)]


class _Held(NamedTuple):
    """A row whose text is read, and whose label is not yet."""

    text: str
    pair: str | None
    label: Any
    column: str | None
    """Column of the label."""
    place: Place
    id: str | None


def _labelled(
    held: list[_Held],
    kind: Kind | None,
    separator: str | None,
    problems: Problems | None,
) -> list[TextExample]:
    examples = []
    names: dict[Any, Label] = {}  # one string for each class, not one for each row
    for text, pair, value, column, place, identifier in held:
        label: Label | None = None
        if kind is not None:
            try:
                if isinstance(value, dict) and OTHER_TYPE in value:
                    raise BadLabel(f"the label is {type_name(value)}")
                if isinstance(value, str) and value.strip() in MISSING_VALUES:
                    raise BadLabel(f"the label is {value.strip()}, a missing value")
                label = parse_label(value, kind, separator)
            except BadLabel as bad:
                fault(problems, "no label", place, f"{bad} (column {column})")
                continue
            label = names.setdefault(label, label) if kind != "regression" else label
        examples.append(TextExample(text, pair, label, place, identifier))
    return examples


def _said(examples: list[TextExample], kind: Kind | None) -> str:
    """Readable description of the labels: ``2 classes: bad, good``."""
    if kind is None:
        return ""
    if kind == "regression":
        numbers = [example.label for example in examples if isinstance(example.label, float)]
        return f"numbers from {min(numbers):g} to {max(numbers):g}"
    names: set[str] = set()
    for example in examples:
        names.update((example.label,) if isinstance(example.label, str) else example.label or ())  # type: ignore[arg-type]
    shown = in_order(names)
    listed = f": {', '.join(shown)}" if len(shown) <= 6 else ""
    return f"{len(names)} {'labels' if kind == 'multi-label' else 'class' if len(names) == 1 else 'classes'}{listed}"


TextFormat = Literal["text", "csv", "tsv", "jsonl", "parquet", "conll", "conllu"]
_Told = TextFormat | Literal["table"]
"""A table may be recognised by its first line."""
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

    `say` gets which columns are read, and how many blank lines were skipped.
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
        say(f"{source_name(name)}: {blank:,} blank {'line' if blank == 1 else 'lines'} skipped")


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
