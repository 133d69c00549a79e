"""The journal of a build: one line for each finished shard, so that a killed build goes on where it stood.

The first line says what is being built; each further line was written, and fsynced, after its shard was whole on the
disk. A last line that a kill tore in two is ignored, and so is a shard without a line. Each line has a checksum over it
and all lines before it (`core/checksummed.py`): one that was edited, or is missing, is noticed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from larvatus.core.checksummed import Ledger
from larvatus.core.errors import ArtefactError
from larvatus.core.settings import Settings
from larvatus.data.corpus.format import FORMAT, JOURNAL, CorpusSettings, Counts, ShardInfo


class Header(Settings):
    format: int
    settings: CorpusSettings


class Entry(Settings):
    """A finished shard, and where the build stood after it."""

    shard: ShardInfo
    units: int
    languages: dict[str, Counts]
    last_document: int
    text_sha256: str


class Journal:
    """Append-only; `entries` are the shards that stand."""

    def __init__(self, directory: Path) -> None:
        way = f"remove {directory} or choose another --out"
        self._ledger = Ledger(directory / JOURNAL, way=way)
        self.header: Header | None = None
        self.entries: list[Entry] = []
        records = self._ledger.records
        try:
            self.header = msgspec.json.decode(records[0], type=Header) if records else None
            self.entries = [msgspec.json.decode(record, type=Entry) for record in records[1:]]
        except msgspec.MsgspecError as fault:
            raise ArtefactError(f"{directory / JOURNAL} is no journal of this version ({fault}); {way}") from fault

    def begin(self, settings: CorpusSettings) -> None:
        """Write the journal anew: the header, and the entries that still hold."""
        self.header = Header(format=FORMAT, settings=settings)
        self._ledger.begin(msgspec.json.encode(record) for record in (self.header, *self.entries))

    def append(self, entry: Entry) -> None:
        self._ledger.append(entry)
        self.entries.append(entry)
