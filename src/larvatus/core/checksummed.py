"""Files that vouch for themselves: what a resume reads was not edited and is not damaged, or it is refused by name.

    write_checksummed(run / "text.json", {"corpus": ["judgments/"]})  # JSON with a checksum over its own text
    read_checksummed(run / "text.json", way="choose another --out")   # one byte changed: refused

    ledger = Ledger(parts / "parts.jsonl", way="start again")          # lines that are added one by one
    ledger.begin(ledger.records)                                      # finished lines are kept, a torn last line is not
    ledger.append({"file": "00000.arrow", "sha256": "5f2c…"})         # its checksum is over it and all lines before it

The checksums find accidents and edits, not forgers: anyone who writes a file can write its checksum too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import ArtefactError, LarvatusError
from larvatus.core.files import saying_what_is_full, sha256, write_text
from larvatus.core.regular_files import LARGEST, is_there, read_bytes, read_text
from larvatus.core.settings import Settings

CHECKSUM = "sha256"
LONGEST = 2**31
"""Bytes of what grows with a corpus: ledgers, the manifest of its shards."""


def write_checksummed(path: Path, value: dict[str, Any]) -> None:
    """JSON that is whole or absent, with a checksum of its contents."""
    write_text(path, _with_checksum(value))


def read_checksummed(
    path: Path, error: type[LarvatusError] = ArtefactError, *, way: str, most: int = LARGEST
) -> dict[str, Any]:
    """What `write_checksummed` wrote; `way` is the advice in the error if a byte differs."""
    text = read_text(path, error, most=most)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise error(f"{path} cannot be read as JSON: {fault}; {way}") from fault
    if not isinstance(record, dict) or CHECKSUM not in record:
        raise error(f"{path} has no checksum: it is damaged, or of another version of Larvatus; {way}")
    del record[CHECKSUM]
    if text != _with_checksum(record):
        raise error(f"{path} does not match its checksum: it was edited or is damaged; {way}")
    return record


def _with_checksum(value: dict[str, Any]) -> str:
    """ASCII, since names of files need not be UTF-8."""

    def written(held: dict[str, Any]) -> str:
        return json.dumps(held, indent=2, sort_keys=True) + "\n"

    return written({**value, CHECKSUM: hashlib.sha256(written(value).encode()).hexdigest()})


def check_file(path: Path, wanted: str, error: type[LarvatusError] = ArtefactError, *, way: str) -> None:
    """Hold a file against the checksum that was noted when it was written."""
    if not is_there(path, error):
        raise error(f"{path} is missing; {way}")
    got = sha256(path)
    if got != wanted:
        raise error(f"{path} does not match its checksum (expected {wanted[:8]}…, got {got[:8]}…); {way}")


class _Line(Settings):
    record: msgspec.Raw
    sha256: str
    """Over the checksum of the line before, and the record."""


class Ledger:
    """JSON lines that are only ever added to; `records` are the complete ones, as they were written."""

    def __init__(self, path: Path, error: type[LarvatusError] = ArtefactError, *, way: str) -> None:
        self.path = path
        self.records: list[bytes] = []
        self._last = ""
        if not is_there(path, error):
            return
        lines = read_bytes(path, error, most=LONGEST).split(b"\n")[:-1]  # what follows the last newline was torn
        for number, line in enumerate(lines, start=1):
            try:
                entry = msgspec.json.decode(line, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
                raise error(f"{path}:{number} is damaged ({fault}); {way}") from fault
            if line != self._line(bytes(entry.record)):
                raise error(f"{path}:{number} does not match its checksum: it was edited or is damaged; {way}")
            self._add(bytes(entry.record))

    def begin(self, records: Iterable[bytes]) -> None:
        """Write it again with these records; what was torn goes."""
        kept, self.records, self._last = list(records), [], ""
        lines = []
        for record in kept:
            lines.append(self._line(record) + b"\n")
            self._add(record)
        write_text(self.path, b"".join(lines).decode())

    def append(self, record: Any) -> None:
        """Add a line; it is on the disk when this returns."""
        written = msgspec.json.encode(record)
        with saying_what_is_full(self.path), self.path.open("ab") as file:
            file.write(self._line(written) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._add(written)

    def _line(self, record: bytes) -> bytes:
        return b'{"record":' + record + b',"sha256":"' + self._checksum(record).encode() + b'"}'

    def _checksum(self, record: bytes) -> str:
        return hashlib.sha256(self._last.encode() + record).hexdigest()

    def _add(self, record: bytes) -> None:
        self._last = self._checksum(record)
        self.records.append(record)
