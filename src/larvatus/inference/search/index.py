"""An index of word instances: built once from a corpus, searched many times without reading it again.

    larvatus similar index texts/ --word bank --out bank.index --model runs/mine

    index.json       what the vectors are (model, layers, pooling), how many, and the checksum of each file
    vectors.npy      [N, D] float16 unit vectors, instances of one word in a row
    rows.npy         [N] the row of each in …
    rows.arrow       … word, left and right context, source, line, start, in the order of the corpus
    words.arrow      word, first, count: the vectors of each word
    standardise.safetensors     if the vectors are standardised

A search for the instances of one word maps that word's part of `vectors.npy` from the disk. Building streams, can be
resumed after a kill, and its memory does not grow with the corpus (except for the list of distinct words).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.lib.format import open_memmap

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, UsageError, did_you_mean
from larvatus.core.regular_files import is_there, only_regular
from larvatus.core.settings import Settings
from larvatus.inference.search.concordance import ConcordanceRow, DocumentFilter, VectorBlock, find_instances, fold_word
from larvatus.inference.vectors.layers import Layers, LayerWeights
from larvatus.inference.vectors.parts import BulkProgress, VectorParts
from larvatus.inference.vectors.passages import LocatedText
from larvatus.inference.vectors.pooling import EmbedOptions, Pool
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.models.loaded import LoadedModel

NAME, VECTORS, ROWS, PLACES, WORDS, STANDARDISE = (
    "index.json", "vectors.npy", "rows.arrow", "rows.npy", "words.arrow", "standardise.safetensors",
)  # fmt: skip
AT_ONCE = 1 << 20
"""Vectors of a block that is searched at once."""
_ROW = pa.schema(
    [
        ("word", pa.string()),
        ("left", pa.string()),
        ("right", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("start", pa.int64()),
    ]
)


_WORDS = pa.schema([("word", pa.string()), ("first", pa.int64()), ("count", pa.int64())])


class IndexDescription(Settings):
    format: int = 1
    model: str
    layers: Layers
    pool: Pool
    standardise: str | None
    """Name of the standardiser, which is stored in the index."""
    instances: int
    words: int
    size: int
    files: dict[str, str]
    """SHA-256 of each file."""


def build_index(
    model: LoadedModel,
    pieces: Iterable[LocatedText],
    chosen: DocumentFilter,
    out: Path,
    options: EmbedOptions,
    *,
    settings: dict[str, Any],
    resume: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> IndexDescription:
    """Write the index of all selected words of passages, whose documents passed the filter.

    `settings` holds everything that the index depends on: model, inputs, words, …
    """
    encoder, tokenizer = model.encoder, model.tokenizer
    if LayerWeights.read(options.layers, layers=encoder.depth).stacked:
        raise UsageError("an index needs one vector for each instance, and layers = all gives several; name a mix")
    directory = out.with_name(out.name + ".parts")
    if os.path.lexists(out) and not (resume and directory.exists()):
        raise ArtefactError(f"{out} is there already; remove it, or choose another --out")
    kind = _ROW.append(pa.field("vector", pa.list_(pa.float16(), encoder.width)))
    parts = VectorParts(directory, settings)
    with files.locked(directory):
        if out.exists():  # killed between its last two steps
            parts.removed()
            return InstanceIndex.open(out).described
        counts = parts.open(resume=resume)
        rest = iter(pieces)
        for _ in range(counts.pieces):
            next(rest, None)
        for instances in find_instances(encoder, tokenizer, rest, chosen.wanted, options):
            counts = BulkProgress(pieces=counts.pieces + instances.passages, units=counts.units + len(instances.rows))
            progress(counts.units)
            if instances.rows:
                parts.add(_batch(instances.rows, instances.vectors, kind), counts)
        if not counts.units:
            shutil.rmtree(directory)
            raise DataError(_nothing(chosen))
        with files.new_directory(out, counts.units * (2 * encoder.width + 300)) as aside:
            described = _assemble(parts, aside, counts.units, settings, options)
        parts.remove()
    return described


def _nothing(chosen: DocumentFilter) -> str:
    if not chosen.read:
        return "the corpus holds no text; name files with text"
    words = ", ".join(sorted(chosen.wanted.words or ())[:3])
    return f"{words or 'no word'} does not occur in the corpus with a vector; check the spelling, or name more text"


def _batch(rows: Sequence[ConcordanceRow], vectors: Any, kind: Any) -> Any:
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in _ROW]
    flat = pa.array(vectors.astype(np.float16).reshape(-1))
    return pa.RecordBatch.from_arrays(
        [*columns, pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])], schema=kind
    )


def _assemble(
    parts: VectorParts, aside: Path, count: int, settings: dict[str, Any], options: EmbedOptions
) -> IndexDescription:
    """Sort parts, which are in the order of the corpus, into vectors in the order of words."""
    counts: Counter[str] = Counter()
    for batch in parts.batches(["word"]):
        counts.update(map(fold_word, batch.column(0).to_pylist()))
    words = sorted(counts)
    firsts = np.cumsum([0, *(counts[word] for word in words)])
    free = dict(zip(words, firsts.tolist(), strict=False))
    size = next(iter(parts.batches(["vector"]))).schema.field("vector").type.list_size
    vectors = open_memmap(aside / VECTORS, mode="w+", dtype=np.float16, shape=(count, size))
    places = open_memmap(aside / PLACES, mode="w+", dtype=np.int64, shape=(count,))
    done = 0
    with pa.OSFile(os.fsencode(aside / ROWS), "wb") as sink, pa.ipc.new_file(sink, _ROW) as writer:
        for batch in parts.batches():
            free_rows = []
            for word in map(fold_word, batch.column("word").to_pylist()):
                free_rows.append(free[word])
                free[word] += 1
            column = batch.column("vector")
            vectors[free_rows] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(free_rows), size)
            places[free_rows] = np.arange(done, done + len(free_rows))
            done += len(free_rows)
            writer.write_batch(batch.select(_ROW.names))
    vectors.flush()
    places.flush()
    table = pa.table({"word": words, "first": firsts[:-1], "count": [counts[word] for word in words]})
    with pa.OSFile(os.fsencode(aside / WORDS), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    if options.standardise is not None:
        options.standardise.save(aside / STANDARDISE)
    described = IndexDescription(
        model=settings["model"],
        layers=options.layers,
        pool=options.pool,
        standardise=options.standardise.name if options.standardise else None,
        instances=count,
        words=len(words),
        size=size,
        files={path.name: files.sha256(path) for path in sorted(aside.iterdir())},
    )
    files.write_json(aside / NAME, msgspec.to_builtins(described))
    return described


@dataclass(frozen=True, eq=False)
class InstanceIndex:
    """An index on the disk, its checksums verified."""

    path: Path
    described: IndexDescription
    words: dict[str, tuple[int, int]]
    """First vector and number of vectors of each word."""

    @classmethod
    def open(cls, path: Path) -> InstanceIndex:
        only_regular(path)
        value = files.read_json(path / NAME)
        if isinstance(value, dict) and value.get("format") != 1:
            raise ArtefactError(
                f"{path / NAME} has format {value.get('format')!r}, and this Larvatus reads 1; build it again"
            )
        try:
            described = msgspec.convert(value, IndexDescription)
        except msgspec.ValidationError as fault:
            raise ArtefactError(f"{path / NAME} is not an index of Larvatus: {fault}") from fault
        if not {VECTORS, ROWS, PLACES, WORDS} <= described.files.keys() <= {VECTORS, ROWS, PLACES, WORDS, STANDARDISE}:
            raise ArtefactError(f"{path / NAME} does not list the files of an index; build it again")
        for name, wanted in described.files.items():
            if not is_there(path / name):
                raise ArtefactError(f"{path / name} is missing; build the index again")
            got = files.sha256(path / name)
            if got != wanted:
                raise ArtefactError(
                    f"{path / name} does not match its checksum (wanted {wanted[:8]}…, got {got[:8]}…); "
                    "build the index again"
                )
        table = _read(path / WORDS, _WORDS)
        places = zip(table["first"].to_pylist(), table["count"].to_pylist(), strict=True)
        words = dict(zip(table["word"].to_pylist(), places, strict=True))
        if any(not 0 <= first <= first + count <= described.instances for first, count in words.values()):
            raise ArtefactError(f"{path / WORDS} names vectors that do not exist; build the index again")
        return cls(path, described, words)

    @property
    def standardiser(self) -> Standardiser | None:
        if self.described.standardise is None:
            return None
        return Standardiser.load(self.path / STANDARDISE)

    def blocks(self, word: str | None) -> Iterator[VectorBlock]:
        """The instances of a word, or of all words."""
        if word is not None and fold_word(word) not in self.words:
            near = did_you_mean(fold_word(word), self.words) if len(self.words) < 100_000 else ""
            raise DataError(f"{self.path} holds no instance of {word!r}{near}")
        first, count = self.words[fold_word(word)] if word is not None else (0, self.described.instances)
        instances = self.described.instances
        vectors = _array(self.path / VECTORS, (instances, self.described.size), np.float16)
        places = _array(self.path / PLACES, (instances,), np.int64)
        table = _read(self.path / ROWS, _ROW)
        if len(table) != instances or (instances and not 0 <= places.min() <= places.max() < instances):
            raise ArtefactError(f"{self.path / PLACES} does not fit {ROWS}; build the index again")

        def rows(low: int) -> Callable[[Sequence[int]], list[ConcordanceRow]]:
            return lambda numbers: [
                ConcordanceRow(**row) for row in table.take(places[[low + n for n in numbers]]).to_pylist()
            ]

        for low in range(first, first + count, AT_ONCE):
            yield VectorBlock(vectors[low : min(first + count, low + AT_ONCE)], rows(low))


def _read(path: Path, wanted: Any) -> Any:
    """Read a table of the index. Its checksum proves that it is complete, not that Larvatus wrote it."""
    try:
        table = pa.ipc.open_file(pa.memory_map(os.fsencode(path))).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as fault:
        raise ArtefactError(f"{path} cannot be read ({fault}); build the index again") from fault
    if not table.schema.equals(wanted) or any(column.null_count for column in table.columns):
        raise ArtefactError(f"{path} has other columns than an index of Larvatus; build it again")
    return table


def _array(path: Path, shape: tuple[int, ...], dtype: type) -> Any:
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as fault:
        raise ArtefactError(f"{path} cannot be read ({fault}); build the index again") from fault
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        raise ArtefactError(f"{path} is not {' × '.join(map(str, shape))} of {dtype.__name__}; build the index again")
    return array
