"""What a corpus looks like on the disk: Arrow IPC shards of token ids, and a manifest with their checksums.

    corpus/
      manifest.json     counts, sources, settings; SHA-256 of every shard, of the tokenizer, of itself; written last
      journal.jsonl     what a build has finished so far, so that a killed one continues
      tokenizer/        the tokenizer the ids belong to
      filter.json …     what was left out of the text, where that was asked for (`hygiene/filtering.py`)
      00000.arrow …     shards of about 64 MB; their record batches are the chunks that the loader shuffles, each of one
                        language

A row is a document, or a part of a long one (`document` is the same for all its parts, `part` counts them). Nothing is
compressed, so a chunk is read where it lies. Special tokens are never stored: packing adds them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from larvatus.core.checksummed import LONGEST, read_checksummed, write_checksummed
from larvatus.core.errors import DataError
from larvatus.core.ranges import Tally
from larvatus.core.regular_files import is_there, read_bytes
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
    """Numbers of its first and last document: equal where the chunk lies within one long document."""
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
    """Where text came from: a path as it was given, what lies there, and the licence as it was given."""

    name: str
    files: Tally = 0
    bytes: Tally = 0
    licence: str = ""


class CorpusSettings(Settings, error=DataError):
    """All that decides what the shards hold, besides the text."""

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
    """The manifest, or one line that says why it cannot be trusted."""
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
    """A shard is a plain file beside the manifest: no absolute path, no .., no link to somewhere else."""
    if not SHARD_NAME.fullmatch(name):
        raise DataError(f"{manifest} names {name!r}, which is not the name of a shard (00000.arrow …); refused")
    if (manifest.parent / name).is_symlink():
        raise DataError(f"{manifest.parent / name} is a link, not a shard; refused")
