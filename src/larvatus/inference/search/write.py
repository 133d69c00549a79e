"""Write an index: the files of a generation as streams, and the vectors that need not be computed again.

    cache = VectorCache(old, parts, kinds)
    cache.missing(keys)                      # which texts the model must read
    parts.add(keys, texts)                   # whole or absent, on the disk before the next block begins
    with PassageWriter(folder, columns=("year",)) as writer:
        writer.begin(file)
        writer.add(rows)                     # returns the keys of the rows
    write_vectors(folder, cache, writer.count, kinds, size)

A text is known by its BLAKE2 hash of 16 bytes, and the cache has the vectors of the old index and of an interrupted
build. A build that is killed therefore resumes where it was, even if files have changed meanwhile; equal passages are
computed once; and a line added to a table of a million costs one vector.

Nothing is mapped for writing: a full disk is then an error that can be reported, not a signal that ends the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from larvatus.core.arrays import Bools, Bytes, Ints, Records
from larvatus.core.errors import ArtefactError
from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import PartsFolder
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
from larvatus.inference.search.storage import Kind, StoredVectors, write_header, write_records
from larvatus.inference.search.text_vectors import StoredTexts

OPEN = 64
"""Parts that are mapped at once."""
_KEY, _RECORDS = "key", "records"


def keys_of(texts: Sequence[str]) -> Bytes:
    """Hashes of texts: [N, 16]."""
    joined = b"".join(hashlib.blake2b(text.encode(), digest_size=KEY).digest() for text in texts)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, KEY)


class KeyTable:
    """Finds the row of a key among N keys by bisection, in 24 bytes of memory a key."""

    def __init__(self, keys_NK: Bytes) -> None:
        names = _as_names(keys_NK)
        self._order = np.argsort(names, kind="stable")
        self._sorted = names[self._order]

    def find(self, keys_MK: Bytes) -> Ints:
        """Row of each key, -1 for those that are not there; of equal keys, the first row."""
        if not len(self._sorted):
            return np.full(len(keys_MK), -1, dtype=np.int64)
        wanted = _as_names(keys_MK)
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        rows: Ints = np.where(self._sorted[places] == wanted, self._order[places], -1)
        return rows


def _as_names(keys_NK: Bytes) -> Any:
    return np.ascontiguousarray(keys_NK).view(f"S{KEY}").ravel()


class ComputedVectors(Settings):
    """How far an interrupted build came."""

    vectors: int = 0


class ComputedParts(PartsFolder[ComputedVectors]):
    """Vectors of blocks of texts in a folder next to the index; see `data/bulk/parts.py`."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        super().__init__(directory, settings, kind=ComputedVectors, suffix=".arrow")
        self._mapped = lru_cache(maxsize=OPEN)(_map)  # only for this run: the next one reuses the names of parts

    def add(self, keys_NK: Bytes, texts: StoredTexts) -> None:
        columns: dict[str, Any] = {_KEY: _listed(keys_NK)}
        columns |= {name: _listed(array) for name, array in texts.arrays.items()}
        if texts.records is not None:
            columns[_RECORDS] = pa.array(texts.records, pa.large_binary())
        batch = pa.RecordBatch.from_pydict(columns)

        def part(aside: Path) -> None:
            with pa.OSFile(os.fsencode(aside), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)

        self.write(part, ComputedVectors(vectors=self.progress().vectors + len(keys_NK)), size=batch.nbytes)

    def records(self, number: int, row: int) -> bytes:
        """The records of a text of a part."""
        value: bytes = self._mapped(self.paths()[number]).column(_RECORDS)[row].as_py()
        return value

    def part_keys(self) -> list[Bytes]:
        """Keys of each part."""
        return [self.column(number, _KEY) for number in range(len(self.paths()))]

    def column(self, number: int, name: str) -> Records:
        """A column of a part as an array, mapped from the disk."""
        column = self._mapped(self.paths()[number]).column(name)
        if pa.types.is_fixed_size_list(column.type):
            return column.flatten().to_numpy().reshape(-1, column.type.list_size)  # type: ignore[no-any-return]
        return column.to_numpy()  # type: ignore[no-any-return]


def _listed(array: Records) -> Any:
    flat = pa.array(array.reshape(-1))
    return flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, array.shape[1])


def _map(path: Path) -> Any:
    return pa.ipc.open_file(pa.memory_map(os.fsencode(path))).get_batch(0)


class VectorCache:
    """Where the vectors of texts are."""

    def __init__(self, old: Generation | None, parts: ComputedParts, kinds: Sequence[Kind], size: int) -> None:
        self._old = old if old is not None and can_convert(old.vectors.kinds, kinds) else None
        self._parts, self._kinds, self._size = parts, tuple(kinds), size
        self._rows = KeyTable(self._old.keys if self._old is not None else np.empty((0, KEY), np.uint8))
        self._known = {key.tobytes() for keys in parts.part_keys() for key in keys}
        self._computed: tuple[KeyTable, Ints, Ints] | None = None

    def missing(self, keys_NK: Bytes) -> Bools:
        """Which keys have no vector yet; each is then expected to be computed, and not missing again."""
        absent = self._rows.find(keys_NK) < 0
        for place in np.flatnonzero(absent):
            key = keys_NK[place].tobytes()
            absent[place] = key not in self._known
            self._known.add(key)
        return absent

    def gather(self, keys_NK: Bytes) -> dict[str, Records]:
        """The stored arrays of texts, in the order of their keys; all must be computed before the first call."""
        shapes = StoredVectors.shapes(self._kinds, self._size)
        out = {name: np.empty((len(keys_NK), *tail), dtype) for name, (dtype, tail) in shapes.items()}
        rows = self._rows.find(keys_NK)
        copied = np.flatnonzero(rows >= 0)
        if self._old is not None and len(copied):
            for name, array in self._converted(rows[copied]).items():
                out[name][copied] = array
        new = np.flatnonzero(rows < 0)
        table, parts, places = self._table()
        located = table.find(keys_NK[new])
        if (located < 0).any():
            raise ArtefactError(
                f"{self._parts.directory} lacks vectors that were written to it; remove it and start again"
            )
        for number in np.unique(parts[located]).tolist():
            mine = parts[located] == number
            for name in shapes:
                out[name][new[mine]] = self._parts.column(number, name)[places[located[mine]]]
        return out

    def gather_records(self, keys_NK: Bytes) -> list[bytes]:
        """The records of texts, in the order of their keys."""
        rows = self._rows.find(keys_NK).tolist()
        table, parts, places = self._table()
        located = table.find(keys_NK).tolist()
        old = None if self._old is None else self._old.records
        listed: list[bytes] = []
        for row, place in zip(rows, located, strict=True):
            if row >= 0 and old is not None:
                listed.append(old.records[old.starts[row] : old.starts[row + 1]].tobytes())
            else:
                listed.append(self._parts.records(int(parts[place]), int(places[place])))
        return listed

    def _table(self) -> tuple[KeyTable, Ints, Ints]:
        """Keys of all parts, with the part and the row of each."""
        if self._computed is None:
            keys = self._parts.part_keys()
            parts = np.repeat(np.arange(len(keys)), [len(each) for each in keys])
            rows = [np.arange(len(each)) for each in keys]
            joined = np.concatenate([*keys, np.empty((0, KEY), np.uint8)])
            self._computed = KeyTable(joined), parts, np.concatenate([*rows, np.empty(0, np.int64)])
        return self._computed

    def _converted(self, rows: Ints) -> dict[str, Records]:
        assert self._old is not None, "rows are found only in an old generation"
        stored = self._old.vectors
        if stored.kinds == self._kinds:
            return {name: array[rows] for name, array in stored.arrays.items()}
        return StoredVectors.encode(stored.decode(rows, stored.kinds[-1]), self._kinds)


def can_convert(old: Sequence[Kind], new: Sequence[Kind]) -> bool:
    """Whether stored vectors can become vectors of other kinds without loss beyond that of the new kinds."""
    return tuple(old) == tuple(new) or old[-1] == "float32" or (old[-1] == "float16" and "float32" not in new)


# The files of a generation.

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
