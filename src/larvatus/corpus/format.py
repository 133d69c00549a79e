"""What a corpus looks like on the disk: Arrow IPC shards of token ids, and a manifest that vouches for them.

    corpus/
      manifest.json     counts, sources, settings, and the SHA-256 of every shard; written last
      journal.jsonl     what a build has finished so far, so that a killed one goes on
      tokenizer/        the tokenizer the ids belong to
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

from larvatus import files
from larvatus.errors import DataError
from larvatus.regular_files import is_there, read_bytes

FORMAT = 1
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
TOKENIZER = "tokenizer"
LARGEST_MANIFEST = 2**30
"""Bytes; a shard of 64 MB takes some kilobytes of it."""
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


class ChunkInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rows: int
    tokens: int
    documents: tuple[int, int]
    """Numbers of its first and last document: equal where the chunk lies within one long document."""
    language: str = ""
    """Of all its rows; empty in corpora built before chunks kept languages apart."""


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str
    bytes: int
    sha256: str
    rows: int
    tokens: int
    chunks: tuple[ChunkInfo, ...]


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exact counts of what the shards hold (`documents` counts a cut document once)."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    tokens: int = 0
    text_bytes: int = 0

    def plus(self, other: Counts) -> Counts:
        names = self.__struct_fields__
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where text came from: a path as it was given, what lies there, and the licence as it was given."""

    name: str
    files: int = 0
    bytes: int = 0
    licence: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that decides what the shards hold, besides the text."""

    tokenizer: str
    """SHA-256 of tokenizer.json."""
    vocabulary: int
    language: str
    sentences: str
    reading: dict[str, Any]
    """How documents were read: split, text field, what to do with bad records."""
    unit_characters: int
    shard_bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    counts: Counts
    languages: dict[str, Counts]
    skipped: dict[str, int]
    """Documents and records left out, by reason."""
    sources: tuple[Source, ...]
    settings: Settings
    text_sha256: str
    """Of the stream of documents: tells whether other text would be built here."""
    shards: tuple[ShardInfo, ...]


def write_manifest(directory: Path, manifest: Manifest) -> None:
    files.write_json(directory / MANIFEST, msgspec.to_builtins(manifest))


def read_manifest(directory: Path) -> Manifest:
    """The manifest, or one line that says why it cannot be trusted."""
    path = directory / MANIFEST
    if not is_there(path, DataError):
        begun = is_there(directory / JOURNAL, DataError)
        why = "was begun but not finished" if begun else "is not a corpus (no manifest.json)"
        raise DataError(f"{directory} {why}; build with: larvatus corpus build … --out {directory}")
    try:
        found = msgspec.json.decode(read_bytes(path, DataError, most=LARGEST_MANIFEST))
        if isinstance(found, dict) and found.get("format") != FORMAT:
            raise DataError(f"{path} has format {found.get('format')!r}, this version reads {FORMAT}; {REBUILD}")
        manifest = msgspec.convert(found, Manifest)
    except (OSError, msgspec.MsgspecError, RecursionError) as fault:
        raise DataError(f"{path} is not a corpus manifest: {fault}; {REBUILD}") from fault
    for shard in manifest.shards:
        check_name(path, shard.file)
    return manifest


def check_name(manifest: Path, name: str) -> None:
    """A shard is a plain file beside the manifest: no absolute path, no .., no link to somewhere else."""
    if not SHARD_NAME.fullmatch(name):
        raise DataError(f"{manifest} names {name!r}, which is not the name of a shard (00000.arrow …); refused")
    is_there(manifest.parent / name, DataError)  # what is no regular file is refused by its kind
