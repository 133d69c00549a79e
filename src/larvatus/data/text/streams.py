"""Streams of text: files, standard input and remote storage, decompressed, as UTF-8, as lines or JSON records.

    for number, line in numbered_lines("pairs.tsv.xz"): ...          # a fault is raised with its place
    with labelled_encoding("latin-1"): read_texts(["old.tsv"])        # labelled examples of any format

Readers know only UTF-8: a stream in another encoding is recoded before they see it. Errors of remote storage (fsspec),
which may be anything, become one line with the address (`storage_errors`).

JSON records are one object a line, or objects that spread over lines, with or without an array around them:

    [{"text": "One."},          two records, of lines 1 and 2 to 4
     {
       "text": "Two."
     }]

A line break never occurs inside a JSON string, so brackets are counted line by line, and memory holds one record. A
file whose first record is on one line is JSON lines: there a broken line is one broken record.
"""

from __future__ import annotations

import codecs
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain, islice
from typing import IO

import fsspec

from larvatus.core.errors import DataError, LarvatusError, UsageError
from larvatus.core.regular_files import open_named
from larvatus.data.text.archives import ARCHIVE_ERRORS, decompressed

LONGEST_LINE = 256 * 2**20
"""Bytes of a line, or of a JSON record; a longer one is no text."""
UTF_8 = "utf-8"
HINT = "--encoding latin-1 (or cp1252, utf-16, …)"
NO_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem")
"""Python's own: names of hosts, source code and the like, which no text file is in."""
_CHUNK = 1 << 16
_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]')
_BETWEEN = b" \t\r\n,"

Lines = Iterator[tuple[int, bytes]]
"""Numbered lines without their ends."""
_of_labelled_files: ContextVar[str] = ContextVar("encoding", default=UTF_8)


def check_encoding(encoding: str) -> str:
    """The name as Python spells it; what is no encoding of text is refused."""
    try:
        name = codecs.lookup(encoding).name
        if name in NO_FILES:
            raise LookupError(name)
        "".encode(name)  # base64 and the like are codecs of something else
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError) as fault:  # ValueError: what is not even a name
        raise UsageError(f"--encoding {encoding} is not known; try utf-8, latin-1, cp1252 or utf-16") from fault
    return name


@contextmanager
def labelled_encoding(encoding: str | None) -> Iterator[None]:
    """Files of labelled examples that are opened meanwhile are in this encoding: a dozen formats, one setting."""
    token = _of_labelled_files.set(UTF_8 if encoding is None else check_encoding(encoding))
    try:
        yield
    finally:
        _of_labelled_files.reset(token)


def encoding_in_use() -> str:
    """Encoding of labelled files, and of texts read one a line, while the command runs."""
    return _of_labelled_files.get()


def as_utf_8(stream: IO[bytes], name: str) -> IO[bytes]:
    """A file of labelled examples in UTF-8."""
    return reencoded(stream, _of_labelled_files.get(), name)


def reencoded(stream: IO[bytes], encoding: str, name: str) -> IO[bytes]:
    """The stream in UTF-8; the stream itself where it is."""
    codec = check_encoding(encoding)
    return stream if codec == UTF_8 else io.BufferedReader(_Recoded(stream, codec, name), _CHUNK)


class _Recoded(io.RawIOBase):
    def __init__(self, stream: IO[bytes], encoding: str, name: str) -> None:
        self._stream, self._encoding, self._name = stream, encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            chunk = self._stream.read(_CHUNK)
            try:
                self._ready = self._decoder.decode(chunk, final=not chunk).encode()
            except UnicodeError as fault:
                raise DataError(f"{self._name} is not {self._encoding} ({fault}); give another --encoding") from fault
            if not chunk and not self._ready:
                return 0
        part, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@contextmanager
def storage_errors(address: str) -> Iterator[None]:
    """Say in one line what came of asking storage for something."""
    try:
        yield
    except LarvatusError:
        raise
    except PermissionError as fault:
        raise DataError(f"{address} may not be read ({_line(fault)}); get permission, or sign in") from fault
    except Exception as fault:
        raise DataError(f"{address} cannot be opened: {_line(fault)}") from fault


def _line(fault: Exception) -> str:
    words = str(getattr(fault, "strerror", None) or fault).strip() or type(fault).__name__
    return words.partition("\n")[0][:300]


@contextmanager
def open_bytes(name: str) -> Iterator[IO[bytes]]:
    """A stream of bytes, decompressed by the suffix; ``-`` is standard input."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with storage_errors(name) if "://" in name else nullcontext():
            raw = fsspec.open(name, "rb").open() if "://" in name else open_named(name, DataError)
    except (OSError, ValueError) as fault:
        raise DataError(f"{name} cannot be opened: {fault}") from fault
    with raw:
        yield decompressed(raw, name)


@contextmanager
def open_seekable(name: str) -> Iterator[IO[bytes]]:
    """The same for formats that are read from their end: what is no plain file is first unpacked to one."""
    with open_bytes(name) as stream:
        if stream.seekable():
            yield stream
            return
        with tempfile.TemporaryFile() as whole:
            try:
                shutil.copyfileobj(stream, whole)
            except OSError as fault:
                raise DataError(f"{name} cannot be unpacked: {fault}") from fault
            whole.seek(0)
            yield whole


def read_whole(name: str, *, most: int = LONGEST_LINE, way: str = "cut it") -> bytes:
    """A file as UTF-8, with its line ends as they are; one of more than `most` bytes is refused with a remedy."""
    shown = "standard input" if name == "-" else name
    with open_bytes(name) as stream:
        try:
            content = as_utf_8(stream, shown).read(most + 1)
        except ARCHIVE_ERRORS as broken:
            raise DataError(f"{shown} breaks off ({broken}); fetch it again") from broken
    if len(content) > most:
        raise DataError(f"{shown} has more than {most:,} bytes; {way}")
    try:
        content.decode()
    except UnicodeDecodeError as bad:
        line = content.count(b"\n", 0, bad.start) + 1
        where = f"{shown}:{line}: byte 0x{content[bad.start]:02x} is not UTF-8"
        raise DataError(f"{where}; repair it, or name its encoding: {HINT}") from bad
    return content


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
            except ARCHIVE_ERRORS as fault:
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


def json_records(lines: Lines, name: str) -> Lines:
    """The line at which each record begins, and the record as bytes; what is no record comes unchanged."""
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
            if size > LONGEST_LINE:
                raise DataError(
                    f"{name}:{first}: a JSON record of more than {LONGEST_LINE:,} bytes; write one object a line"
                )
        elif stray := line[done:].strip(_BETWEEN):
            yield number, stray
    if depth:
        yield first, b"\n".join(held)
