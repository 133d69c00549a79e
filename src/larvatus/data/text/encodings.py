"""Text files that are not UTF-8: a stream of bytes in some encoding becomes the same text in UTF-8.

    with recoded(open("old.txt", "rb"), "latin-1", "old.txt") as stream: ...
    with reading_in("latin-1"): read_texts(["old.tsv"])           # labelled examples, of whatever format

Readers know UTF-8 alone; this stands between the file and all of them.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO

from larvatus.core.errors import DataError, UsageError

UTF_8 = "utf-8"
HINT = "--encoding latin-1 (or cp1252, utf-16, …)"
NO_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem")
"""Python's own: names of hosts, source code and the like, which no text file is in."""
_CHUNK = 1 << 16
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
def reading_in(encoding: str | None) -> Iterator[None]:
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
    return recoded(stream, _of_labelled_files.get(), name)


def recoded(stream: IO[bytes], encoding: str, name: str) -> IO[bytes]:
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
