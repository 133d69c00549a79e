"""Numbered lines of a file or of standard input, decompressed; a fault is raised with its place.

for number, line in numbered_lines("pairs.tsv.xz"):
    ...
"""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.core.errors import DataError
from larvatus.data.text.archives import BROKEN
from larvatus.data.text.encodings import HINT, as_utf_8
from larvatus.data.text.records import LONGEST_LINE, open_bytes


def numbered_lines(name: str) -> Iterator[tuple[int, str]]:
    """Lines without their ends, counted from 1; ``-`` is standard input."""
    shown = "standard input" if name == "-" else name
    number = 0
    with open_bytes(name) as raw:
        stream = as_utf_8(raw, shown)
        while True:
            number += 1
            try:
                line = stream.readline(LONGEST_LINE + 1)
            except BROKEN as fault:
                raise DataError(f"{shown}:{number}: the file breaks off here ({fault}); fetch it again") from fault
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise DataError(f"{shown}:{number}: the line has more than {LONGEST_LINE:,} bytes; cut it")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as fault:
                raise DataError(
                    f"{shown}:{number}: byte 0x{line[fault.start]:02x} at {fault.start + 1} is not UTF-8; repair it, "
                    f"or name its encoding: {HINT}"
                ) from fault
            if "\0" in text:
                raise DataError(
                    f"{shown}:{number}: NUL byte at {text.index(chr(0)) + 1}; repair it, or name its encoding: {HINT}"
                )
            yield number, text.rstrip("\r\n")
