"""Write shards whole, and check them: SHA-256 of each against the manifest, in threads, before anything is read.

A shard is written aside, fsynced, summed, renamed; a name without the dot is a finished shard.

The journal of a build: one line for each finished shard, so that a killed build continues where it stood.

The first line says what is being built; each further line was written, and fsynced, after its shard was whole on the
disk. A last line that a kill tore in two is ignored, and so is a shard without a line. Each line has a checksum over it
and all lines before it (`core/checksummed.py`): one that was edited, or is missing, is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa

from larvatus.core import files
from larvatus.core.checksummed import Ledger, check_file
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.regular_files import refuse_link
from larvatus.core.settings import Settings
from larvatus.data.corpus.format import (
    FORMAT,
    JOURNAL,
    REBUILD,
    SHARD_NAME,
    TOKENIZER,
    ChunkInfo,
    CorpusCounts,
    CorpusSettings,
    ShardInfo,
    shard_name,
)


class ShardWriter:
    """One shard at a time, from record batches that come ready made."""

    def __init__(self, directory: Path, number: int, schema: pa.Schema) -> None:
        self._final = directory / shard_name(number)
        self._aside = directory / f".{self._final.name}.tmp-{os.getpid()}"
        self._schema = schema
        self._chunks: list[ChunkInfo] = []
        with files.saying_what_is_full(self._final):
            files.remove(self._aside)
            self._sink = pa.OSFile(os.fsencode(self._aside), "wb")
            self._writer = pa.ipc.new_file(self._sink, schema)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, batches: Sequence[bytes], chunks: Sequence[ChunkInfo]) -> None:
        with files.saying_what_is_full(self._final):
            for batch in batches:
                self._writer.write_batch(pa.ipc.read_record_batch(pa.py_buffer(batch), self._schema))
        self._chunks.extend(chunks)

    def finish(self) -> ShardInfo:
        with files.saying_what_is_full(self._final):
            self._writer.close()
            self._sink.close()
            files.fsync(self._aside)
            digest = files.sha256(self._aside)
            os.replace(self._aside, self._final)
            files.fsync(self._final.parent)
        return ShardInfo(
            file=self._final.name,
            bytes=self._final.stat().st_size,
            sha256=digest,
            rows=sum(chunk.rows for chunk in self._chunks),
            tokens=sum(chunk.tokens for chunk in self._chunks),
            chunks=tuple(self._chunks),
        )

    def abandon(self) -> None:
        """Leave nothing half-written."""
        self._sink.close()
        self._aside.unlink(missing_ok=True)


def shard_fault(directory: Path, shard: ShardInfo) -> str | None:
    """Describe the fault of a shard on disk; None if it matches the manifest."""
    if not SHARD_NAME.fullmatch(shard.file):
        return f"{directory} names {shard.file!r}, which is not the name of a shard (00000.arrow …); {REBUILD}"
    path = directory / shard.file
    try:
        size = path.stat().st_size
        actual = files.sha256(path)
    except FileNotFoundError:
        return f"{path} is missing; {REBUILD}"
    except OSError as fault:
        return f"{path} cannot be read ({fault.strerror}); {REBUILD}"
    if actual != shard.sha256:
        cut = f", {size:,} bytes instead of {shard.bytes:,}" if size != shard.bytes else ""
        sums = f"expected {shard.sha256[:4]}…, got {actual[:4]}…{cut}"
        return f"{path} does not match its checksum ({sums}); {REBUILD}"
    return None


def check_tokenizer(directory: Path, settings: CorpusSettings) -> None:
    """Refuse the tokenizer beside the shards unless it is, file by file, the one that they were made with."""
    folder = directory / TOKENIZER
    refuse_link(folder, DataError)
    for name, wanted in settings.tokenizer.items():
        if Path(name).name != name:
            raise DataError(f"{directory} names {name!r}, which is no file of a tokenizer; {REBUILD}")
        check_file(folder / name, wanted, DataError, way=REBUILD)
    others = {path.name for path in folder.iterdir() if not path.name.startswith(".")} - settings.tokenizer.keys()
    if others:
        raise DataError(f"{folder / min(others)} is not of the tokenizer that the shards were made with; {REBUILD}")


def check_shards(directory: Path, shards: Iterable[ShardInfo]) -> None:
    """Refuse the first shard that is missing, cut short or changed."""
    shards = list(shards)
    for shard in shards:  # all that is missing before any is summed: that takes no time
        if not (directory / shard.file).is_file():
            raise DataError(f"{directory / shard.file} is missing; {REBUILD}")
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        for fault in threads.map(lambda shard: shard_fault(directory, shard), shards):
            if fault is not None:
                raise DataError(fault)


class JournalHeader(Settings):
    format: int
    settings: CorpusSettings


class JournalEntry(Settings):
    """A finished shard, and where the build stood after it."""

    shard: ShardInfo
    units: int
    languages: dict[str, CorpusCounts]
    last_document: int
    text_sha256: str


class Journal:
    """Append-only; `entries` are the shards that stand."""

    def __init__(self, directory: Path) -> None:
        way = f"remove {directory} or choose another --out"
        self._ledger = Ledger(directory / JOURNAL, way=way)
        self.header: JournalHeader | None = None
        self.entries: list[JournalEntry] = []
        records = self._ledger.records
        try:
            self.header = msgspec.json.decode(records[0], type=JournalHeader) if records else None
            self.entries = [msgspec.json.decode(record, type=JournalEntry) for record in records[1:]]
        except msgspec.MsgspecError as fault:
            raise ArtefactError(f"{directory / JOURNAL} is no journal of this version ({fault}); {way}") from fault

    def begin(self, settings: CorpusSettings) -> None:
        """Write the journal again: the header, and the entries that still hold."""
        self.header = JournalHeader(format=FORMAT, settings=settings)
        self._ledger.begin(msgspec.json.encode(record) for record in (self.header, *self.entries))

    def append(self, entry: JournalEntry) -> None:
        self._ledger.append(entry)
        self.entries.append(entry)
