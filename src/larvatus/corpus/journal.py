"""The journal of a build: one line for each finished shard, so that a killed build goes on where it stood.

The first line says what is being built (settings, and a fingerprint of the input files); each further line was
written, and fsynced, after its shard was whole on the disk. A last line that a kill tore in two is ignored, and so is
a shard without a line.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from larvatus import files
from larvatus.corpus.format import FORMAT, JOURNAL, LARGEST_MANIFEST, Counts, Settings, ShardInfo
from larvatus.errors import ArtefactError
from larvatus.regular_files import is_there, read_bytes


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    settings: Settings
    inputs: str | None
    """Fingerprint of the input files (names, sizes, times), where there are files."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished shard, and where the build stood after it."""

    shard: ShardInfo
    units: int
    languages: dict[str, Counts]
    last_document: int
    text_sha256: str


class Journal:
    """Append-only; `entries` are the shards that stand."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL
        self.header: Header | None = None
        self.entries: list[Entry] = []
        if not is_there(self._path):
            return
        lines = read_bytes(self._path, most=LARGEST_MANIFEST).split(b"\n")
        del lines[-1]  # what follows the last newline was torn
        try:
            if lines:
                self.header = msgspec.json.decode(lines[0], type=Header)
            self.entries = [msgspec.json.decode(line, type=Entry) for line in lines[1:]]
        except msgspec.MsgspecError as fault:
            raise ArtefactError(
                f"{self._path} is damaged ({fault}); remove {directory} or choose another --out"
            ) from fault

    def begin(self, settings: Settings, inputs: str | None) -> None:
        """Write the journal anew: the header, and the entries that still hold."""
        self.header = Header(format=FORMAT, settings=settings, inputs=inputs)
        lines = [msgspec.json.encode(record) for record in (self.header, *self.entries)]
        files.write_text(self._path, b"".join(line + b"\n" for line in lines).decode())

    def append(self, entry: Entry) -> None:
        with files.saying_what_is_full(self._path), self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)
