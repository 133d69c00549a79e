"""Columns of CoNLL-2005 and CoNLL-2012: a word a line, its lemma if it is a predicate, and a column for each predicate.

    Ann     -     -      (A0*)     (A0*)                     word, sense, lemma, and arguments of try and of run
    tried   01    try    (V*)      *
    to      -     -      (A1*      *
    run     02    run    *)        (V*)

A blank line ends a sentence. Before the lemma a file may have any columns; the word is the first. A sense (``01``) is
the column before the lemma where it looks like one. The files of CoNLL-2012 (``#begin document``) have their columns
in fixed places. Brackets of one predicate may not nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place, source_name
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.roles.examples import VERB, Frame, FramedSentence, RoleSpan, in_order, sentence_fault

Rows = list[tuple[int, list[str]]]
"""Lines of a sentence, each with its number and cells."""
_CELL = re.compile(r"(?P<open>(?:\([^()*\s]+)*)\*(?P<close>(?:[^()*\s]*\))*)")
_SENSE = re.compile(r"\d+|XX|[A-Z]{2}")
NONE = "-"
WORD_2012, LEMMA_2012, SENSE_2012, FIRST_2012 = 3, 6, 7, 11
"""Columns of CoNLL-2012, from 0: the word, lemma and frameset of a predicate, the first column of arguments."""


class BadColumns(Exception):
    """A sentence that cannot be read: the kind of fault, its line, and a message."""

    def __init__(self, kind: str, line: int, message: str) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


def read_props(name: str, problems: Problems | None = None) -> tuple[list[FramedSentence], str]:
    """The sentences of a file, and what was read as what."""
    source = source_name(name)
    sentences = list(_sentences(source, numbered_lines(name), problems))
    if not sentences:
        raise DataError(f"{source} is empty; give words with predicates and arguments in columns")
    later = any(document is not None for document, _ in sentences)
    lemma = LEMMA_2012 if later else _lemma_column(source, [rows for _, rows in sentences])
    examples = []
    for document, rows in sentences:
        place = Place(source, rows[0][0], document=document)
        try:
            words, frames = _read_2012(rows) if later else _read_2005(rows, lemma)
        except BadColumns as bad:
            fault(problems, bad.kind, Place(source, bad.line), str(bad))
            continue
        if (wrong := sentence_fault(words, frames)) is not None:
            fault(problems, wrong[0], place, wrong[1])
        else:
            examples.append(FramedSentence(words, frames, place))
    said = "columns of CoNLL-2012" if later else f"word = column 1, lemma = column {lemma + 1}"
    return examples, f"read as: {said}"


def is_props(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file look like such columns."""
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    begins = any(line.startswith("#begin document") for line in lines)
    return begins or (len(rows) > 0 and not rows[0][0].startswith("{") and all(len(row) > 1 for row in rows))


def _sentences(
    source: str, lines: Iterable[tuple[int, str]], problems: Problems | None
) -> Iterator[tuple[int | None, Rows]]:
    """Lines of each sentence with the line where its document begins; None where files mark no documents.

    A sentence whose lines differ in their number of columns is a fault.
    """
    rows: Rows = []
    document = None
    for number, line in [*lines, (0, "")]:
        if line.startswith("#begin document"):
            document = number
        if line.strip() and not line.startswith(("#begin document", "#end document")):
            rows.append((number, line.split()))
            continue
        if rows:
            width = len(rows[0][1])
            odd = next((at for at, cells in rows if len(cells) != width), None)
            if odd is None:
                yield document, rows
            else:
                said = f"its line has another number of columns than the first of its sentence, {width}"
                fault(problems, "wrong number of columns", Place(source, odd), said)
        rows = []


def _lemma_column(source: str, sentences: Sequence[Rows]) -> int:
    """The column of lemmas: the first with as many words as columns follow it, in every sentence."""
    narrow = min(len(rows[0][1]) for rows in sentences)
    for column in range(1, narrow):
        if all(_marked(rows, column) == len(rows[0][1]) - column - 1 for rows in sentences):
            return column
    # no column fits: that of most sentences, whose others are named one by one
    fits = [sum(_marked(rows, c) == len(rows[0][1]) - c - 1 for rows in sentences) for c in range(1, narrow)]
    if not fits or not max(fits):
        raise DataError(
            f"{source}: no column of lemmas is followed by a column for each of them; give words, lemmas (- for words "
            "that are no predicates) and a column of brackets for each predicate"
        )
    return 1 + fits.index(max(fits))


def _marked(rows: Rows, column: int) -> int:
    return sum(cells[column] != NONE for _, cells in rows)


def _read_2005(rows: Rows, lemma: int) -> tuple[tuple[str, ...], tuple[Frame, ...]]:
    predicates = [number for number, (_, cells) in enumerate(rows) if cells[lemma] != NONE]
    columns = len(rows[0][1]) - lemma - 1
    if columns != len(predicates):
        said = f"{len(predicates)} predicates but {columns} columns of arguments"
        raise BadColumns("predicates and columns differ in number", rows[0][0], said)
    frames = []
    for number, predicate in enumerate(predicates):
        cells = rows[predicate][1]
        arguments = read_brackets([(line, row[lemma + 1 + number]) for line, row in rows])
        with_sense = lemma > 1 and _SENSE.fullmatch(cells[lemma - 1])
        roleset = f"{cells[lemma]}.{cells[lemma - 1]}" if with_sense else cells[lemma]
        frames.append(Frame(predicate, roleset, arguments))
    return tuple(cells[0] for _, cells in rows), tuple(frames)


def _read_2012(rows: Rows) -> tuple[tuple[str, ...], tuple[Frame, ...]]:
    line, first = rows[0]
    if len(first) <= FIRST_2012:
        raise BadColumns("wrong number of columns", line, f"{len(first)} columns, but CoNLL-2012 has 12 or more")
    predicates = [number for number, (_, cells) in enumerate(rows) if cells[SENSE_2012] != NONE]
    columns = len(first) - FIRST_2012 - 1
    if columns != len(predicates):
        said = f"{len(predicates)} predicates but {columns} columns of arguments"
        raise BadColumns("predicates and columns differ in number", line, said)
    frames = []
    for number, predicate in enumerate(predicates):
        cells = rows[predicate][1]
        arguments = read_brackets([(at, row[FIRST_2012 + number]) for at, row in rows])
        frames.append(Frame(predicate, f"{cells[LEMMA_2012]}.{cells[SENSE_2012]}", arguments))
    return tuple(cells[WORD_2012] for _, cells in rows), tuple(frames)


def read_brackets(column: Sequence[tuple[int, str]]) -> tuple[RoleSpan, ...]:
    """The arguments that a column of brackets spells; cells come with their lines.

    >>> read_brackets([(1, "(A0*"), (2, "*)"), (3, "(V*)")])
    (RoleSpan(role='A0', first=0, last=1), RoleSpan(role='V', first=2, last=2))
    """
    spans: list[RoleSpan] = []
    opened: tuple[str, int, int] | None = None
    for number, (line, cell) in enumerate(column):
        match = _CELL.fullmatch(cell)
        if match is None:
            raise BadColumns("no bracket", line, f"{cell!r} is no bracket of an argument, such as (A0* or *)")
        begins = match["open"].split("(")[1:]
        if len(begins) > 1 or (begins and opened is not None):
            raise BadColumns("arguments overlap", line, f"{cell!r} begins an argument inside another one")
        if begins:
            opened = begins[0], number, line
        ends = match["close"].count(")")
        if ends > 1 or (ends and opened is None):
            raise BadColumns("bracket that nothing opens", line, f"{cell!r} closes an argument that is not open")
        if ends and opened is not None:
            spans.append(RoleSpan(opened[0], opened[1], number))
            opened = None
    if opened is not None:
        raise BadColumns("bracket that does not close", opened[2], f"({opened[0]}* is never closed in its sentence")
    return tuple(spans)


def props_lines(words: Sequence[str], frames: Iterable[Frame]) -> Iterator[str]:
    """A sentence in columns of CoNLL-2005: word, sense, lemma, and arguments of each predicate; a blank line ends it.

    A predicate without its own words among its arguments gets them: srl-eval.pl expects (V*).
    """
    ordered = sorted(frames)
    columns = [[word, NONE, NONE, *("*" for _ in ordered)] for word in words]
    for number, frame in enumerate(ordered):
        lemma, _, sense = frame.roleset.rpartition(".")
        columns[frame.predicate][1:3] = [sense, lemma] if lemma else [NONE, frame.roleset]
        spans = frame.arguments
        if not any(first <= frame.predicate <= last for _, first, last in spans):
            spans = in_order([*spans, RoleSpan(VERB, frame.predicate, frame.predicate)])
        for role, first, last in spans:
            columns[first][3 + number] = f"({role}{columns[first][3 + number]}"
            columns[last][3 + number] += ")"
    for cells in columns:
        if not cells[0] or len(cells[0].split()) != 1:
            raise DataError(f"the word {cells[0]!r} holds a space; columns cannot write it")
        yield "\t".join(cells)
    yield ""
