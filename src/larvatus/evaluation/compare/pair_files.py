"""Files of minimal pairs: BLiMP's JSONL, or lines good<TAB>bad[<TAB>phenomenon]; both may be compressed.

    {"sentence_good": "…", "sentence_bad": "…", "UID": "adjunct_island", "linguistics_term": "…", "field": "syntax"}

Errors name file and line. The first line determines the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.streams import numbered_lines

GROUPS = {"UID": "phenomenon", "linguistics_term": "term", "field": "field"}
"""Groupings of pairs, finest first: the name in files, and the name in tables."""
_HEADERS = (["sentence_good", "sentence_bad"], ["good", "bad"])


class MinimalPair(msgspec.Struct, frozen=True, kw_only=True):
    good: str
    bad: str
    groups: dict[str, str] = {}
    """Group by each name of `GROUPS`."""
    id: str | None = None
    """Its `pairID` in the file."""
    where: str = ""
    """File and line."""


def read_pairs(names: Sequence[str]) -> list[MinimalPair]:
    """All pairs of all files, in order."""
    pairs = [pair for name in names for pair in _pairs(name)]
    if not pairs:
        raise DataError(f"no minimal pairs in {', '.join(names)}; give JSONL, or good<TAB>bad lines")
    return pairs


def _pairs(name: str) -> Iterator[MinimalPair]:
    lines = ((number, line) for number, line in numbered_lines(name) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    read = _record if first[1].lstrip().startswith("{") else _row
    for number, line in chain([first], lines):
        if read is _row and number == first[0] and [cell.strip() for cell in line.split("\t")[:2]] in _HEADERS:
            continue
        where = f"{'standard input' if name == '-' else name}:{number}"
        yield _checked(read(line, where))


def minimal_pair(sentences: Any, where: str) -> MinimalPair:
    """A pair from memory: the good sentence, then the bad one. `where` names it in errors."""
    if not isinstance(sentences, tuple | list) or [type(sentence) for sentence in sentences] != [str, str]:
        raise UsageError(f"{where} is not two sentences; give files, or the good and the bad sentence of each pair")
    return _checked(MinimalPair(good=sentences[0], bad=sentences[1], where=where))


def _checked(pair: MinimalPair) -> MinimalPair:
    for sentence in (pair.good, pair.bad):
        if not sentence.strip():
            raise DataError(f"{pair.where}: a sentence is empty; there is nothing to score")
        if "\0" in sentence:
            raise DataError(f"{pair.where}: NUL byte at {sentence.index(chr(0)) + 1} of a sentence; repair it")
        refuse_surrogates(sentence, pair.where)
    return pair


def _record(line: str, where: str) -> MinimalPair:
    try:
        record: Any = msgspec.json.decode(line)
    except (ValueError, RecursionError) as fault:
        raise DataError(f"{where}: broken JSON: {fault}") from fault
    if not isinstance(record, dict):
        raise DataError(f"{where}: the line is not a JSON object")
    for name in ("sentence_good", "sentence_bad"):
        if name not in record:
            raise DataError(f"{where}: no field {name!r}; a pair has sentence_good and sentence_bad")
        if not isinstance(record[name], str):
            raise DataError(f"{where}: field {name!r} is {type(record[name]).__name__}, not a string")
    groups = {name: str(record[name]) for name in GROUPS if record.get(name) is not None}
    identifier = record.get("pairID")
    return MinimalPair(
        good=record["sentence_good"],
        bad=record["sentence_bad"],
        groups=groups,
        id=None if identifier is None else str(identifier),
        where=where,
    )


def _row(line: str, where: str) -> MinimalPair:
    cells = [cell.strip() for cell in line.split("\t")]
    if not 2 <= len(cells) <= 3:
        raise DataError(f"{where}: {len(cells)} columns; write good<TAB>bad, or good<TAB>bad<TAB>phenomenon")
    groups = {"UID": cells[2]} if len(cells) == 3 and cells[2] else {}
    return MinimalPair(good=cells[0], bad=cells[1], groups=groups, where=where)
