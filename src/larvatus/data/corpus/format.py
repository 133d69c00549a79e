"""A corpus on disk: Arrow IPC shards of token ids, a manifest with their checksums, and the journal of a build.

    corpus/
      manifest.json     counts, sources, settings; SHA-256 of every shard, of the tokenizer, of itself; written last
      journal.jsonl     what a build has finished so far, so that a killed one continues
      tokenizer/        the tokenizer the ids belong to
      filter.json …     what was filtered from the text, where requested (`hygiene/filtering.py`)
      00000.arrow …     shards of about 64 MB; their record batches are the chunks that the loader shuffles, each of one
                        language

A row is a document, or a part of a long one (`document` is the same for all its parts, `part` counts them). Nothing is
compressed, so a chunk is read in place. Special tokens are never stored: packing adds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from larvatus.core import files
from larvatus.core.checksummed import LONGEST, Ledger, check_file, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.ranges import Tally
from larvatus.core.regular_files import is_there, read_bytes, refuse_link
from larvatus.core.settings import Settings

FORMAT = 2
"""1 was that of Larvatus 0.1: neither the manifest nor all files of the tokenizer had a checksum."""
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
TOKENIZER = "tokenizer"
REBUILD = "rebuild with: larvatus corpus build …"

SHARD_NAME = re.compile(r"[0-9]{5,9}\.arrow")


def shard_name(number: int) -> str:
    return f"{number:05d}.arrow"


def schema(vocabulary: int) -> pa.Schema:
    """The columns of a shard; two bytes a token where the vocabulary allows it."""
    ids = pa.uint16() if vocabulary <= 1 << 16 else pa.uint32()
    return pa.schema(
        [
            pa.field("ids", pa.list_(pa.field("item", ids, nullable=False)), nullable=False),
            # where each sentence starts, counted in tokens from the start of the row; the first is 0
            pa.field("sentences", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
            # one bit a token: does a word start here?
            pa.field("words", pa.list_(pa.field("item", pa.bool_(), nullable=False)), nullable=False),
            pa.field("document", pa.int64(), nullable=False),
            pa.field("part", pa.int32(), nullable=False),
            pa.field("language", pa.string(), nullable=False),
            pa.field("source", pa.string(), nullable=False),
            pa.field("line", pa.int64(), nullable=False),
        ]
    )


class ChunkInfo(Settings, error=DataError):
    rows: Tally
    tokens: Tally
    documents: tuple[int, int]
    """Numbers of its first and last document: equal where the chunk is within one long document."""
    language: str = ""
    """Language of all its rows; empty in corpora built before chunks kept languages apart."""


class ShardInfo(Settings, error=DataError):
    file: str
    bytes: Tally
    sha256: str
    rows: Tally
    tokens: Tally
    chunks: tuple[ChunkInfo, ...]


class CorpusCounts(Settings, error=DataError):
    """Exact counts of what the shards hold (`documents` counts a cut document once)."""

    documents: Tally = 0
    sentences: Tally = 0
    words: Tally = 0
    tokens: Tally = 0
    text_bytes: Tally = 0

    def plus(self, other: CorpusCounts) -> CorpusCounts:
        names = self.__struct_fields__
        return CorpusCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class CorpusSource(Settings, error=DataError):
    """Where text came from: a path as it was given, its contents, and the licence as it was given."""

    name: str
    files: Tally = 0
    bytes: Tally = 0
    licence: str = ""


class CorpusSettings(Settings, error=DataError):
    """All that decides what the shards hold, apart from the text."""

    tokenizer: dict[str, str]
    """SHA-256 of each of its files."""
    vocabulary: Tally
    language: str
    sentences: str
    reading: dict[str, Any]
    """How documents were read: split, text field, what to do with bad records."""
    unit_characters: Tally
    shard_bytes: Tally
    hygiene: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What was looked for and left out, what was planted, and the checksum of what was decided of each document; unset
    where all text was taken as it is."""


class CorpusManifest(Settings):
    format: int
    counts: CorpusCounts
    languages: dict[str, CorpusCounts]
    skipped: dict[str, int]
    """Documents and records left out, by reason."""
    sources: tuple[CorpusSource, ...]
    settings: CorpusSettings
    text_sha256: str
    """Checksum of the stream of documents: shows whether other text would be built here."""
    shards: tuple[ShardInfo, ...]
    hygiene: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What was left out and removed; checksum of the sketch. Unset where all text was taken as it is."""


def write_manifest(directory: Path, manifest: CorpusManifest) -> None:
    write_checksummed(directory / MANIFEST, msgspec.to_builtins(manifest))


def read_manifest(directory: Path) -> CorpusManifest:
    """The manifest, or a one-line error with the reason why it cannot be trusted."""
    path = directory / MANIFEST
    if not is_there(path, DataError):
        begun = is_there(directory / JOURNAL, DataError)
        why = "was begun but not finished" if begun else "is not a corpus (no manifest.json)"
        raise DataError(f"{directory} {why}; build with: larvatus corpus build … --out {directory}")
    try:
        stored = msgspec.json.decode(read_bytes(path, DataError, most=LONGEST))
        if isinstance(stored, dict) and stored.get("format") != FORMAT:
            raise DataError(f"{path} has format {stored.get('format')!r}, this version reads {FORMAT}; {REBUILD}")
        manifest = msgspec.convert(read_checksummed(path, DataError, way=REBUILD, most=LONGEST), CorpusManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise DataError(f"{path} is not a corpus manifest: {fault}; {REBUILD}") from fault
    for shard in manifest.shards:
        check_name(path, shard.file)
    return manifest


def check_name(manifest: Path, name: str) -> None:
    """A shard is a plain file next to the manifest: no absolute path, no .., no link to somewhere else."""
    if not SHARD_NAME.fullmatch(name):
        raise DataError(f"{manifest} names {name!r}, which is not the name of a shard (00000.arrow …); refused")
    if (manifest.parent / name).is_symlink():
        raise DataError(f"{manifest.parent / name} is a link, not a shard; refused")


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
    """Refuse the tokenizer of the shards unless it is, file by file, the one that they were made with."""
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
    """A finished shard, and the state of the build after it."""

    shard: ShardInfo
    units: int
    languages: dict[str, CorpusCounts]
    last_document: int
    text_sha256: str


class Journal:
    """Append-only; `entries` are the finished shards."""

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
