"""Compressed files read whole or not at all: .gz, .xz, .bz2 and .zst, of one part or of several end to end.

    with open("text.zst", "rb") as raw:
        stream = unpacked(raw, "text.zst")       # a stream of bytes; the file itself where its name says no compression

The usual readers take much that is no whole archive: zstandard's ends without a word where a frame is cut, lzma and bz2
pass over what follows a stream, gzip reads an empty file. Here each of these is refused by the file's name. One cut is
seen by nobody: that between two parts, since what precedes it is an archive by itself.

Memory is bounded too: what a file may ask for, and what a few of its bytes may unpack to at once. So is time: no text
shrinks to a thousandth (`archives.py`).

How much a file may unpack to: a few bytes that unpack to terabytes are refused while they are read.

    growth = Growth("text.zst", ratio=1_000, floor=4 << 20)
    growth.take(65_536, packed=12)                        # raises DataError once it is too much

Memory is bounded by those who read in chunks; this bounds the time.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from larvatus.core.errors import DataError

CHUNK = 1 << 16
"""Bytes that are unpacked at a time, about."""
PACKED = 1 << 12
"""Bytes that are read at a time: few, so that what they unpack to is noticed early."""
LARGEST_WINDOW = 1 << 27
"""Bytes that a .zst file may look back on: what `zstd` itself accepts by default (`--long=27`)."""
LARGEST_DICTIONARY = 1 << 28
"""Bytes of memory for a .xz file: four times what `xz -9` wants."""
LARGEST_RATIO, LEAST_UNPACKED = 1_000, 4 << 20
"""Bytes that one byte may become, and bytes up to which that is not looked at."""
_SLICE = 1 << 10
"""Bytes of .zst at a time: four of them may decompress to 128 KiB, and nothing stops it midway."""

ARCHIVE_ERRORS = (EOFError, OSError, lzma.LZMAError, zstandard.ZstdError, zlib.error)
"""What reading a damaged file raises."""


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)  # header and checksum of gzip

    def decompress(self, data: bytes, most: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


class _Zstd:
    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()
        self._held = memoryview(b"")

    def decompress(self, data: bytes, _most: int, /) -> bytes:
        held = memoryview(data) if data else self._held
        self._held = held[_SLICE:]
        return self._inner.decompress(held[:_SLICE])

    @property
    def needs_input(self) -> bool:
        return not self._held

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + bytes(self._held)


_Part = _Gzip | _Zstd | lzma.LZMADecompressor | bz2.BZ2Decompressor
"""Unpacks one part: a gzip member, an xz or bzip2 stream, a zstd frame."""
_PARTS: dict[str, Callable[[], _Part]] = {
    ".gz": _Gzip,
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST_DICTIONARY),
    ".bz2": bz2.BZ2Decompressor,
    ".zst": _Zstd,
}
COMPRESSIONS = tuple(_PARTS)
_PADDING = {".gz": b"\0", ".xz": b"\0"}
"""What may fill up a file after a part."""


def compression(name: str) -> str:
    """The suffix of a compressed file; empty if it is not compressed."""
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


def decompressed(raw: IO[bytes], name: str) -> IO[bytes]:
    """The stream decompressed by the name's suffix. What is cut or damaged is refused as it is come upon."""
    kind = compression(name)
    return io.BufferedReader(_Unpacked(_chunks(raw, kind, name)), CHUNK) if kind else raw


class _Unpacked(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._ready = memoryview(chunk)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _chunks(raw: IO[bytes], kind: str, name: str) -> Iterator[bytes]:
    """What a file unpacks to, as long as that is not far more than was read of it."""
    counted = _Counted(raw)
    growth = UnpackLimit(name, LARGEST_RATIO, LEAST_UNPACKED)
    for chunk in _unpacked_parts(counted, kind, name):
        growth.take(len(chunk), packed=counted.taken())
        yield chunk


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._read = raw, 0

    def read(self, size: int) -> bytes:
        data = self._raw.read(size)
        self._read += len(data)
        return data

    def taken(self) -> int:
        """Bytes since the last call."""
        taken, self._read = self._read, 0
        return taken


def _unpacked_parts(raw: _Counted, kind: str, name: str) -> Iterator[bytes]:
    try:
        rest = raw.read(PACKED)
        if not rest:
            raise DataError(f"{name} is no whole {kind} file: it is empty; fetch it again")
        first, padding = True, _PADDING.get(kind, b"")
        while rest:
            rest = yield from _part(raw, rest, kind, name, first)
            first = False
            rest = rest.lstrip(padding)
            while not rest and (more := raw.read(PACKED)):
                rest = more.lstrip(padding)
    except ARCHIVE_ERRORS as fault:
        raise DataError(f"{name} is no whole {kind} file ({fault}); fetch or compress it again") from fault


def _part(raw: _Counted, rest: bytes, kind: str, name: str, first: bool) -> Generator[bytes, None, bytes]:
    """What one part unpacks to; gives back the bytes after it."""
    part = _PARTS[kind]()
    data, taken = rest, 0
    while not part.eof:
        if part.needs_input and not data and not (data := raw.read(PACKED)):
            raise DataError(f"{name} is no whole {kind} file: it breaks off; fetch it again")
        try:
            chunk = part.decompress(data if part.needs_input else b"", CHUNK)
        except ARCHIVE_ERRORS as fault:
            if not first and not taken:
                what = f"bytes follow its end that are no {kind} data ({fault})"
                raise DataError(f"{name} is no whole {kind} file: {what}; fetch it again, or cut them off") from fault
            raise
        data = b""
        taken += len(chunk)
        if chunk:
            yield chunk
    return part.unused_data


PARQUET_RATIO, PARQUET_FLOOR = 250, 64 << 20
"""Texts that repeat are written once in Parquet, so that honest files shrink much too."""
LONGEST_CELL = 64 << 20
"""Bytes of a text in a table; a longer one is no text of a document."""


@dataclass
class UnpackLimit:
    """Bytes that were unpacked so far, and from how many."""

    name: str
    ratio: int
    floor: int
    """Bytes that are always unpacked."""
    packed: int = 0
    unpacked: int = 0

    def take(self, unpacked: int, *, packed: int = 0) -> None:
        self.unpacked += unpacked
        self.packed += packed
        if self.unpacked > max(self.floor, self.ratio * self.packed):
            raise DataError(
                f"{self.name}: {self.packed:,} bytes unpack to more than {self.unpacked:,}, as no text does; "
                "if it is meant so, unpack the file first"
            )


def parquet_limit(name: str, size: int) -> UnpackLimit:
    return UnpackLimit(name, PARQUET_RATIO, PARQUET_FLOOR, packed=size)


def string_columns(schema: Any) -> list[str]:
    """Columns of strings: read as dictionaries, a text that repeats is held once."""
    return [field.name for field in schema if _is_text(field.type)]


def count_batch(growth: UnpackLimit, batch: Any) -> None:
    """Count the bytes that the rows of a batch become, before any of them becomes a string."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        sizes = _sizes(column)
        if sizes is None:
            growth.take(column.nbytes)
            continue
        longest = pc.max(sizes).as_py() or 0
        if longest > LONGEST_CELL:
            raise DataError(
                f"{growth.name}: column {name!r} holds a text of {longest:,} bytes; more than {LONGEST_CELL:,} are "
                "refused; split it"
            )
        growth.take(pc.sum(pc.cast(sizes, pa.int64())).as_py() or 0)


def _sizes(column: Any) -> Any:
    """Bytes of each string; None of other columns."""
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        return pc.binary_length(column.dictionary).take(column.indices)
    return pc.binary_length(column) if _is_text(kind) else None


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
