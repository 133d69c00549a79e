"""An index of passages on the disk: a manifest that names one generation of files.

    index/index.json             model, settings, counts, and the size and SHA-256 of every file; itself checksummed
    index/00002/sources.arrow    a row for each file of text: path, size, time, SHA-256, its first passage, how many
    index/00002/passages.arrow   a row for each passage: document, line, start, end, text, and the metadata columns
    index/00002/keys.npy         [N, 16] hash of each passage's text, by which a later build finds its vector again
    index/00002/vectors.*.npy    [N, D] unit vectors (`storage.py`)
    index/00002/records.*        of late and sparse vectors: those of tokens, or weights of tokens (`storage.py`)

A build writes the next generation aside, then replaces the manifest in one step, then removes the old generation. A
reader therefore sees the old index or the new one, and a build that is killed leaves the old one whole. Files are
mapped from the disk; a reader that has the old generation open keeps it until it closes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from larvatus.core.arrays import Bytes, Ints, Records
from larvatus.core.checksummed import LONGEST, check_file, read_checksummed
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there, only_regular
from larvatus.core.settings import Settings
from larvatus.inference.search.storage import (
    AGAIN,
    Kind,
    RaggedRecords,
    StoredVectors,
    VectorFormat,
    record_type,
    stored_kinds,
)
from larvatus.models.heads.head import VectorKind

NAME, SOURCES, PASSAGES, KEYS = "index.json", "sources.arrow", "passages.arrow", "keys.npy"
FORMAT = 1
KEY = 16
"""Bytes of a passage's hash."""
METADATA = "metadata."
"""Prefix of metadata columns in the table of passages."""
SOURCE_ROW = pa.schema(
    [
        ("path", pa.binary()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("sha256", pa.string()),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("documents", pa.int64()),
    ]
)
PASSAGE_FIELDS = (
    ("document", pa.int64()),
    ("line", pa.int64()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("text", pa.string()),
)


def passage_schema(columns: tuple[str, ...]) -> Any:
    """Columns of the table of passages, those of the metadata last."""
    return pa.schema([*PASSAGE_FIELDS, *((METADATA + column, pa.string()) for column in columns)])


class FileSum(Settings):
    """Size and checksum of a file."""

    bytes: int
    sha256: str


class IndexManifest(Settings):
    """What an index holds, and how it was made."""

    format: int = FORMAT
    model: str
    """Name of the model, as it was given."""
    fingerprint: str
    """Identity of its weights, settings and vocabulary."""
    size: int
    """Dimensions of a vector."""
    kind: VectorKind = "dense"
    """Kind of the model's vectors."""
    vectors: VectorFormat
    columns: tuple[str, ...] = ()
    """Metadata columns."""
    reading: dict[str, Any]
    """How text was read and cut; other settings cut all text again."""
    base: str
    """Folder that relative paths of sources begin at."""
    generation: str
    built_ns: int
    """Time at which the build began: a file that is younger may have changed without a trace in its time."""
    documents: int
    passages: int
    files: dict[str, FileSum]
    """Files of the generation."""

    @property
    def stored(self) -> tuple[Kind, ...]:
        """How unit vectors are stored; an index of sparse vectors has none."""
        return stored_kinds(self.kind, self.vectors.kinds)


@dataclass(frozen=True)
class SourceFile:
    """A file of text in the index."""

    path: str
    """As it was named; names need not be UTF-8."""
    size: int
    mtime_ns: int
    sha256: str
    first: int = 0
    """Its first passage."""
    count: int = 0
    documents: int = 0


@dataclass(frozen=True, eq=False)
class Generation:
    """The files of an index, mapped from the disk."""

    path: Path
    """The index."""
    manifest: IndexManifest
    sources: tuple[SourceFile, ...]
    passages: Any
    """Arrow table of N passages."""
    keys: Bytes
    """[N, 16]."""
    vectors: StoredVectors
    firsts: Ints
    """First passage of each source, so that a row's source is found by bisection."""
    records: RaggedRecords | None = None
    """Records of each passage; None for dense vectors."""

    @classmethod
    def open(cls, path: Path, *, verify: bool = True) -> Generation:
        """Open an index; `verify` compares every file with its checksum."""
        for _ in range(3):  # a build may replace the generation between the manifest and its files
            manifest = read_manifest(path)
            try:
                return cls._open(path, manifest, verify=verify)
            except ArtefactError:
                if read_manifest(path).generation == manifest.generation:
                    raise
        raise ArtefactError(f"{path} is being built again and again; wait until that ends")

    @classmethod
    def _open(cls, path: Path, manifest: IndexManifest, *, verify: bool) -> Generation:
        folder = path / manifest.generation
        shapes = StoredVectors.shapes(manifest.stored, manifest.size)
        needed = {SOURCES, PASSAGES, KEYS, *(f"{name}.npy" for name in shapes)}
        if not needed <= manifest.files.keys():
            raise ArtefactError(f"{path / NAME} does not list all files of an index; {AGAIN}")
        for name, wanted in manifest.files.items():
            if not is_there(folder / name):
                raise ArtefactError(f"{folder / name} is missing; {AGAIN}")
            if (got := (folder / name).stat().st_size) != wanted.bytes:
                raise ArtefactError(f"{folder / name} has {got:,} bytes, and {wanted.bytes:,} were written; {AGAIN}")
            if verify:
                check_file(folder / name, wanted.sha256, way=AGAIN)
        table = read_table(folder / SOURCES, SOURCE_ROW, full=verify)
        sources = tuple(SourceFile(**{**row, "path": os.fsdecode(row["path"])}) for row in table.to_pylist())
        passages = read_table(folder / PASSAGES, passage_schema(manifest.columns), full=verify)
        count = manifest.passages
        firsts = np.array([source.first for source in sources], dtype=np.int64)
        ends = np.array([source.first + source.count for source in sources], dtype=np.int64)
        if len(passages) != count or [0, *ends.tolist()] != [*firsts.tolist(), count]:
            raise ArtefactError(f"{folder / SOURCES} does not fit {PASSAGES}; {AGAIN}")
        vectors = map_vectors(folder, manifest, count)
        keys = map_array(folder / KEYS, (count, KEY), np.dtype(np.uint8))
        record = record_type(manifest.kind, manifest.size)
        records = None if record is None else RaggedRecords.open(folder, record, count)
        return cls(path, manifest, sources, passages, keys, vectors, firsts, records)

    @property
    def folder(self) -> Path:
        return self.path / self.manifest.generation

    def source_of(self, row: int) -> SourceFile:
        """The file that a passage comes from."""
        place = int(np.searchsorted(self.firsts, row, side="right")) - 1
        return self.sources[place]


def read_manifest(path: Path) -> IndexManifest:
    """The manifest of an index; what is none is refused."""
    if not path.is_dir():
        raise ArtefactError(f"{path} is no index: there is no such folder; make it with larvatus search build")
    if not is_there(path / NAME):
        raise ArtefactError(f"{path} is no index: it has no {NAME}; make it with larvatus search build")
    only_regular(path)
    value = read_checksummed(path / NAME, way=AGAIN, most=LONGEST)
    if value.get("format") != FORMAT:
        raise ArtefactError(f"{path / NAME} has format {value.get('format')!r}, and {FORMAT} is read here; {AGAIN}")
    try:
        manifest = msgspec.convert(value, IndexManifest)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path / NAME} is not the manifest of an index ({fault}); {AGAIN}") from fault
    if not manifest.generation.isdigit() or any(Path(name).name != name for name in manifest.files):
        raise ArtefactError(f"{path / NAME} names files outside of the index; {AGAIN}")
    return manifest


def read_table(path: Path, wanted: Any, *, full: bool = True) -> Any:
    """An Arrow table, mapped from the disk. Its checksum proves that it is complete, not that Larvatus wrote it.

    `full` checks every offset and text, which reads all of it.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(os.fsencode(path))).read_all()
        table.validate(full=full)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
        raise ArtefactError(f"{path} cannot be read ({fault}); {AGAIN}") from fault
    if not table.schema.equals(wanted):
        raise ArtefactError(f"{path} has other columns than an index of Larvatus; {AGAIN}")
    return table


def passage_texts(folder: Path, columns: tuple[str, ...]) -> Iterator[str]:
    """The texts of all passages in order, some thousand in memory at a time."""
    for batch in read_table(folder / PASSAGES, passage_schema(columns)).to_batches():
        yield from batch.column("text").to_pylist()


def map_vectors(folder: Path, manifest: IndexManifest, count: int) -> StoredVectors:
    """The vectors of a generation, mapped from the disk."""
    kinds, size = manifest.stored, manifest.size
    shapes = StoredVectors.shapes(kinds, size).items()
    arrays = {name: map_array(folder / f"{name}.npy", (count, *tail), dtype) for name, (dtype, tail) in shapes}
    return StoredVectors(arrays, kinds, size)


def map_array(path: Path, shape: tuple[int, ...], dtype: Any) -> Records:
    """An array mapped from the disk; one of another shape is refused.

    The map is private (mode "c"): torch warns of arrays that it may not write to, and nothing is written back.
    """
    try:
        array = np.load(path, mmap_mode="c" if shape[0] else None)
    except (OSError, ValueError, EOFError) as fault:
        raise ArtefactError(f"{path} cannot be read ({fault}); {AGAIN}") from fault
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        raise ArtefactError(f"{path} is not {' × '.join(map(str, shape))} of {dtype}; {AGAIN}")
    return array
