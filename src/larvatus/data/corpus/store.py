"""A corpus on disk, opened: verified first, then read in place (memory-mapped, no copy).

corpus = Corpus.open(Path("corpus"))          # every shard is checked against its SHA-256
corpus.tokens, corpus.tokenizer.size
block = corpus.block([4, 17])                 # two chunks as flat arrays, ready to be packed
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from larvatus.core.errors import DataError
from larvatus.core.regular_files import only_regular
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import (
    JOURNAL,
    MANIFEST,
    REBUILD,
    TOKENIZER,
    ChunkInfo,
    CorpusManifest,
    ShardInfo,
    check_shards,
    check_tokenizer,
    read_manifest,
    schema,
)
from larvatus.data.corpus.mixture import ChunkPart
from larvatus.data.corpus.remote import RemoteShards
from larvatus.data.text.tokenizer import Tokenizer

_OPEN_SHARDS = 64  # a file handle each
_OPEN_REMOTE = 4  # one that makes room in the cache keeps its place on the disk while it is open


def is_corpus(path: Path) -> bool:
    """Whether a directory holds a corpus, finished or begun, rather than text."""
    return (path / JOURNAL).is_file() or ((path / MANIFEST).is_file() and (path / TOKENIZER).is_dir())


@dataclass(frozen=True, eq=False)
class Corpus:
    path: Path
    manifest: CorpusManifest

    @classmethod
    def open(cls, path: Path, verify: bool = True) -> Corpus:
        """Open a built corpus. Whatever is missing or changed is refused here, by name, before anything is read."""
        only_regular(Path(path), error=DataError)
        corpus = cls(Path(path), read_manifest(Path(path)))
        if verify:
            corpus.verify()
        return corpus

    def verify(self) -> None:
        """Check the tokenizer and every shard against the manifest; those that are elsewhere, when they are fetched."""
        check_tokenizer(self.path, self.manifest.settings)
        if self._remote is None:
            check_shards(self.path, self.manifest.shards)
            for number in range(len(self.manifest.shards)):
                self._shard(number)
        counted = sum(chunk.tokens for chunk in self.chunks)
        if counted != self.tokens or not self.chunks:
            raise DataError(
                f"{self.path}: the manifest counts {self.tokens:,} tokens, its shards {counted:,}; {REBUILD}"
            )
        languages: Counter[str] = Counter()
        for chunk in self.chunks:
            languages[chunk.language] += chunk.tokens
        told = {name: counts.tokens for name, counts in self.manifest.languages.items()}
        if "" not in languages and languages != told:
            raise DataError(f"{self.path}: the languages of its chunks are not those of the manifest; {REBUILD}")

    @property
    def documents(self) -> int:
        return self.manifest.counts.documents

    @property
    def sentences(self) -> int:
        return self.manifest.counts.sentences

    @property
    def words(self) -> int:
        return self.manifest.counts.words

    @property
    def tokens(self) -> int:
        return self.manifest.counts.tokens

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that can be read apart: all of them, or none in an old corpus whose chunks mix several."""
        names = tuple(self.manifest.languages)
        return names if len(names) == 1 or all(chunk.language for chunk in self.chunks) else ()

    @property
    def fingerprint(self) -> str:
        """A checksum of the shards and the tokenizer: two corpora that share it hold the same."""
        sums = sorted(self.manifest.settings.tokenizer.items())
        parts = [*(f"{name} {sum}" for name, sum in sums), *(shard.sha256 for shard in self.manifest.shards)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        check_tokenizer(self.path, self.manifest.settings)
        return Tokenizer.load(self.path / TOKENIZER)

    @functools.cached_property
    def chunks(self) -> tuple[ChunkInfo, ...]:
        """The record batches of all shards, in the order of the text."""
        return tuple(chunk for shard in self.manifest.shards for chunk in shard.chunks)

    @functools.cached_property
    def _first_chunks(self) -> list[int]:
        counts = [len(shard.chunks) for shard in self.manifest.shards]
        return [int(n) for n in np.cumsum([0, *counts])]

    def batch(self, chunk: int) -> pa.RecordBatch:
        """Chunk number `chunk` as Arrow holds it, with languages and sources."""
        shard = int(np.searchsorted(self._first_chunks, chunk, side="right")) - 1
        try:
            return self._shard(shard).get_batch(chunk - self._first_chunks[shard])
        except (pa.ArrowInvalid, OSError) as fault:
            raise DataError(f"{self._path(shard)} cannot be read ({fault}); {REBUILD}") from fault

    def block(self, chunks: Sequence[int]) -> TextBlock:
        """Several chunks, end to end, as flat arrays."""
        return self.parts([ChunkPart(chunk, 0, self.chunks[chunk].tokens) for chunk in chunks])

    def parts(self, parts: Sequence[ChunkPart]) -> TextBlock:
        """The same of stretches of chunks."""
        name = f"{self.path}: chunk {parts[0].chunk}" + (" …" if len(parts) > 1 else "")
        whole = [part.first == 0 and part.last == self.chunks[part.chunk].tokens for part in parts]
        stretches = [None if all_of_it else part[1:] for part, all_of_it in zip(parts, whole, strict=True)]
        batches = [self.batch(part.chunk) for part in parts]
        return TextBlock.join(batches, self.manifest.settings.vocabulary, name, stretches)

    def _path(self, shard: int) -> Path:
        return self.path / self.manifest.shards[shard].file

    @functools.cached_property
    def _remote(self) -> RemoteShards | None:
        return RemoteShards.of(self.path)

    @functools.cached_property
    def _shard(self) -> functools._lru_cache_wrapper[pa.ipc.RecordBatchFileReader]:
        most = _OPEN_SHARDS if self._remote is None else _OPEN_REMOTE
        return functools.lru_cache(maxsize=most)(self._open_shard)

    def _open_shard(self, number: int) -> pa.ipc.RecordBatchFileReader:
        path, info = self._path(number), self.manifest.shards[number]
        try:
            reader = pa.ipc.open_file(self._mapped(path, info))
        except (pa.ArrowException, OSError) as fault:
            raise DataError(f"{path} is not a shard ({fault}); {REBUILD}") from fault
        wanted = schema(self.manifest.settings.vocabulary)
        if not reader.schema.equals(wanted, check_metadata=True):
            ours = [field for field in reader.schema if any(field.equals(w, check_metadata=True) for w in wanted)]
            strange = [field.name for field in reader.schema if field not in ours or field.metadata] or ["their order"]
            raise DataError(f"{path} has columns that no corpus has ({', '.join(strange)}); refused")
        if reader.num_record_batches != len(info.chunks):
            count = f"{reader.num_record_batches} record batches instead of {len(info.chunks)}"
            raise DataError(f"{path} has {count}; {REBUILD}")
        return reader

    def _mapped(self, path: Path, info: ShardInfo) -> pa.MemoryMappedFile:
        """The shard in memory; one that is elsewhere is fetched, again where it made room before it was opened."""
        while self._remote is not None:
            with suppress(FileNotFoundError):
                return pa.memory_map(os.fsencode(self._remote.fetched(info)), "r")
        return pa.memory_map(os.fsencode(path), "r")
