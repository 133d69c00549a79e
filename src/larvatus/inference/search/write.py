"""Write the files of a generation as streams: the table of passages, their keys, the vectors, the list of sources.

    with PassageWriter(folder, columns=("year",)) as writer:
        writer.begin(file)
        writer.add(rows)                     # returns the keys of the rows
    write_vectors(folder, cache, writer.count, kinds, size)

Nothing is mapped for writing: a full disk is then an error that can be reported, not a signal that ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from larvatus.core.arrays import Bytes
from larvatus.inference.search.generation import (
    KEY,
    KEYS,
    PASSAGES,
    SOURCE_ROW,
    SOURCES,
    Generation,
    SourceFile,
    passage_schema,
)
from larvatus.inference.search.quantised import Kind, StoredVectors
from larvatus.inference.search.ragged import write_header, write_records
from larvatus.inference.search.vector_cache import VectorCache, keys_of

ROWS = 4_096
"""Passages of a record batch."""
GATHERED = 16_384
"""Vectors that are copied at once."""
RECORDS_GATHERED = 1_024
"""Passages whose records are copied at once."""


class PassageRow(NamedTuple):
    """A passage before it is written."""

    document: int
    line: int
    start: int
    end: int
    text: str
    metadata: tuple[str | None, ...]


class PassageWriter:
    """Appends passages to the table, source by source."""

    def __init__(self, folder: Path, columns: tuple[str, ...]) -> None:
        self.count = 0
        self.sources: list[SourceFile] = []
        self._folder, self._schema = folder, passage_schema(columns)
        self._rows: list[PassageRow] = []

    def __enter__(self) -> PassageWriter:
        self._open = ExitStack()
        sink = self._open.enter_context(pa.OSFile(os.fsencode(self._folder / PASSAGES), "wb"))
        self._table = self._open.enter_context(pa.ipc.new_file(sink, self._schema))
        self._keys: IO[bytes] = self._open.enter_context((self._folder / "keys.raw").open("wb"))
        return self

    def __exit__(self, kind: Any, *fault: Any) -> None:
        with self._open:
            if kind is None:
                self._flush()
        if kind is None:
            self._finish_keys()

    def begin(self, file: SourceFile) -> None:
        """Passages that follow belong to this file."""
        self.sources.append(replace(file, first=self.count, count=0, documents=0))

    def add(self, rows: Sequence[PassageRow]) -> Bytes:
        """Append the passages of one document; returns their keys."""
        keys = keys_of([row.text for row in rows])
        self._rows += rows
        self._count(keys, documents=1 if rows else 0)
        if len(self._rows) >= ROWS:
            self._flush()
        return keys

    def copy(self, file: SourceFile, old: SourceFile, generation: Generation) -> None:
        """Append the passages that the old generation has of a file."""
        self._flush()
        self.begin(file)
        for batch in generation.passages.slice(old.first, old.count).to_batches(max_chunksize=ROWS):
            self._table.write_batch(batch)
        self._count(generation.keys[old.first : old.first + old.count], documents=old.documents)

    def _count(self, keys: Bytes, *, documents: int) -> None:
        self._keys.write(np.ascontiguousarray(keys).tobytes())
        self.count += len(keys)
        last = self.sources[-1]
        self.sources[-1] = replace(last, count=last.count + len(keys), documents=last.documents + documents)

    def _flush(self) -> None:
        if not self._rows:
            return
        fields = list(zip(*(row[:5] for row in self._rows), strict=True))
        fields += list(zip(*(row.metadata for row in self._rows), strict=True))
        columns = [pa.array(values, kind.type) for values, kind in zip(fields, self._schema, strict=True)]
        self._table.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows = []

    def _finish_keys(self) -> None:
        """The keys with their header, now that their number is known."""
        raw = self._folder / "keys.raw"
        with raw.open("rb") as source, (self._folder / KEYS).open("wb") as target:
            write_header(target, np.dtype(np.uint8), (self.count, KEY))
            while block := source.read(1 << 20):
                target.write(block)
        raw.unlink()


def write_vectors(folder: Path, cache: VectorCache, count: int, kinds: Sequence[Kind], size: int) -> None:
    """Copy the vectors of all passages into the order of the table."""
    with ExitStack() as opened:
        streams: dict[str, IO[bytes]] = {}
        for name, (dtype, tail) in StoredVectors.shapes(kinds, size).items():
            streams[name] = opened.enter_context((folder / f"{name}.npy").open("wb"))
            write_header(streams[name], dtype, (count, *tail))
        for keys in _key_blocks(folder / KEYS):
            for name, array in cache.gather(keys).items():
                streams[name].write(np.ascontiguousarray(array).tobytes())


def write_all_records(folder: Path, cache: VectorCache, itemsize: int) -> None:
    """Copy the records of all passages into the order of the table."""
    blocks = (cache.gather_records(keys) for keys in _key_blocks(folder / KEYS, RECORDS_GATHERED))
    write_records(folder, blocks, itemsize)


def _key_blocks(path: Path, size: int = GATHERED) -> Iterator[Bytes]:
    keys = np.load(path, mmap_mode="r")
    for low in range(0, len(keys), size):
        yield np.asarray(keys[low : low + size])


def write_sources(folder: Path, sources: Sequence[SourceFile]) -> None:
    """The list of files."""
    rows = [{**asdict(source), "path": os.fsencode(source.path)} for source in sources]
    with pa.OSFile(os.fsencode(folder / SOURCES), "wb") as sink, pa.ipc.new_file(sink, SOURCE_ROW) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=SOURCE_ROW))
