"""Sentences with predicates and arguments from JSON lines, and from columns of CoNLL-2005 and CoNLL-2012.

    train = read_frames("propbank.train.jsonl.xz")
    {"words": ["Ann", "ran"], "frames": [{"pred": 1, "roleset": "run.02", "args": [["ARG0", 0, 0], ["V", 1, 1]]}]}

Faults are raised with their line, or collected in `problems`: arguments that overlap or lie outside the sentence, a
predicate that does, brackets that do not close, a sentence without words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Dataset, Place, Row
from larvatus.data.labelled.tables import ENDINGS, LabelledTable, TableOptions, ending, open_table
from larvatus.data.labelled.texts import BadCell
from larvatus.data.text.columns import WORDS, first_named
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.roles.examples import Frame, FramedSentence, RoleSpan, in_order, sentence_fault
from larvatus.tasks.roles.props import read_props
from larvatus.tasks.tables import read_files, row_id

FRAMES = "frames"
HEAD = 20
"""Lines that are looked at for the format."""


def read_frames(paths: Paths, problems: Problems | None = None) -> Dataset[FramedSentence]:
    """Sentences with their predicates from one file or several; the format follows from the name, then the contents."""

    def read_file(name: str) -> tuple[str, str, Iterable[FramedSentence]]:
        if is_table(name):
            table = open_table(name, TableOptions(), problems)
            return table.name, "words, frames", table_sentences(table, problems)
        examples, said = read_props(name, problems)
        return (examples[0].place.source if examples else name), said.removeprefix("read as: "), examples

    give = "give sentences with predicates and arguments"
    examples, source, read_as = read_files(paths, read_file, give=give, problems=problems)
    return Dataset(tuple(examples), source, read_as)


def is_table(name: str) -> bool:
    """Whether a file has rows of JSON or Parquet, not columns of words."""
    if ending(name) in ENDINGS:
        return ending(name) not in (".csv", ".tsv", ".tab")
    return name != "-" and any(line.lstrip().startswith("{") for _, line in islice(numbered_lines(name), HEAD))


def has_frames(columns: Sequence[str]) -> bool:
    """Whether a table holds words with frames."""
    return FRAMES in columns and first_named(WORDS, tuple(columns)) is not None


def table_sentences(table: LabelledTable, problems: Problems | None) -> Iterator[FramedSentence]:
    """The sentences of a table's rows."""
    words = first_named(WORDS, table.columns)
    if words is None or FRAMES not in table.columns:
        there = ", ".join(table.columns)
        raise DataError(f"{table.name} has no words and frames (it has {there}); each row needs both")
    for place, row in table.rows:
        try:
            sentence = _sentence(row, words, place)
        except BadCell as bad:
            fault(problems, bad.kind, place, str(bad))
        else:
            yield sentence


def _sentence(row: Row, column: str, place: Place) -> FramedSentence:
    words, frames = row.get(column), row.get(FRAMES)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadCell("no list of words", f"{column} is no list of words")
    if not isinstance(frames, list):
        raise BadCell("no list of frames", f"{FRAMES} is no list of predicates with their arguments")
    read = tuple(sorted(_frame(frame) for frame in frames))
    if (wrong := sentence_fault(words, read)) is not None:
        raise BadCell(*wrong)
    return FramedSentence(tuple(words), read, place, id=row_id(row, "sent_id") or row_id(row, "id"))


def _frame(given: Any) -> Frame:
    example = '{"pred": 1, "roleset": "run.02", "args": [["ARG0", 0, 0]]}'
    if not isinstance(given, dict) or not {"pred", "roleset", "args"} <= given.keys():
        raise BadCell("no frame", f"a frame is a record such as {example}, not {json.dumps(given)[:60]}")
    predicate, roleset, arguments = given["pred"], given["roleset"], given["args"]
    if not _is_number(predicate) or not isinstance(roleset, str) or not roleset.strip() or len(roleset.split()) > 1:
        raise BadCell("no frame", f"pred is the number of a word and roleset a name, as in {example}")
    if not isinstance(arguments, list):
        raise BadCell("no frame", f"args is a list of roles with their words, as in {example}")
    return Frame(predicate, roleset, in_order(map(_argument, arguments)))


def _argument(given: Any) -> RoleSpan:
    if isinstance(given, list) and len(given) == 3:
        role, first, last = given
        named = isinstance(role, str) and len(role.split()) == 1 and not set(role) & set("()*")
        if named and _is_number(first) and _is_number(last):
            return RoleSpan(role, first, last)
    said = f'an argument is a role and its first and last word, such as ["ARG0", 0, 2], not {json.dumps(given)[:60]}'
    raise BadCell("no argument", said)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def frame_record(example: FramedSentence) -> dict[str, Any]:
    """A sentence as a line of JSON has it; what `read_frames` reads."""
    frames = [
        {"pred": frame.predicate, "roleset": frame.roleset, "args": [list(argument) for argument in frame.arguments]}
        for frame in example.frames or ()
    ]
    where = {} if example.id is None else {"sent_id": example.id}
    return {**where, "words": list(example.words), FRAMES: frames}
