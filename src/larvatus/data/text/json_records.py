"""JSON records of a file: one object a line, or objects that spread over lines, alone or in an array.

    [{"text": "One."},          two records, of lines 1 and 2 to 4; so would be the objects without the array
     {
       "text": "Two."
     }]

A line break never stands inside a JSON string, so brackets are counted line by line, and no more than one record is in
memory. A file whose first record is on one line is JSON lines: there a broken line is one broken record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from larvatus.core.errors import DataError

LONGEST = 256 * 2**20
"""Bytes of a record."""

_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]')
_BETWEEN = b" \t\r\n,"

Lines = Iterator[tuple[int, bytes]]
"""Numbered lines without their ends."""


def json_records(lines: Lines, name: str) -> Lines:
    """The line at which each record begins, and the record as bytes; what is no record comes as it stands."""
    filled = ((number, line) for number, line in lines if line.strip())
    head = list(islice(filled, 2))
    both = chain(head, filled)
    return _spread(both, name) if head and _spreads([line.strip() for _, line in head]) else both


def _spreads(head: list[bytes]) -> bool:
    """Whether records spread over lines: an array begins, or an object that its line does not end."""
    if head[0].startswith(b"["):
        return True
    opened = sum((bracket in b"{[") - (bracket in b"}]") for bracket in _brackets(head[0]))
    return head[0].startswith(b"{") and opened > 0 and not head[-1].startswith(b"{")


def _brackets(line: bytes) -> list[bytes]:
    return [match for match in _BRACKET.findall(line) if not match.startswith(b'"')]


def _spread(lines: Lines, name: str) -> Lines:
    held: list[bytes] = []  # lines of the record that is open
    first, depth, size, array = 0, 0, 0, False
    for number, line in lines:
        done = 0  # how far the line is used up
        for match in _BRACKET.finditer(line):
            bracket = match.group()
            if bracket.startswith(b'"'):
                continue
            if depth == 0:
                if stray := line[done : match.start()].strip(_BETWEEN):
                    yield number, stray
                opens = bracket == b"{" or (bracket == b"[" and array)
                array, first, done = True, number, match.start() if opens else match.end()
                depth += opens
                continue
            depth += 1 if bracket in b"[{" else -1
            if depth == 0:
                yield first, b"\n".join([*held, line[done : match.end()]])
                held, size, done = [], 0, match.end()
        if depth:
            held.append(line[done:])
            size += len(line) - done
            if size > LONGEST:
                raise DataError(
                    f"{name}:{first}: a JSON record of more than {LONGEST:,} bytes; write one object a line"
                )
        elif stray := line[done:].strip(_BETWEEN):
            yield number, stray
    if depth:
        yield first, b"\n".join(held)
