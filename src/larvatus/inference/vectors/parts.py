"""Files of vectors: a folder of Arrow parts (`data/bulk/parts.py`) while a run grows, then one file.

parts = Parts(Path("vectors.parquet.parts"), settings)
counts = parts.open(resume=True)
parts.add(rows(block, embedded, kind), counts)

The suffix of the file names its format:

    .parquet .arrow    a row for each unit: document, source, line, unit, start, end, text, vector (null if missing)
    .safetensors       `vectors` [U, D] with `document`, `source`, `line`, `unit`, `start`, `end` [U]; `source` is an
                       index into the list of names in the file's metadata; the texts of units are omitted
    .npy               only the vectors, [U, D]

A missing vector is NaN in the last two. The file appears complete or not at all.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.outputs import new_output
from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import PartsFolder
from larvatus.inference.vectors.passages import LocatedText
from larvatus.inference.vectors.vectors import Vectors

Number = Literal["float32", "float16"]


class BulkProgress(Settings):
    """Totals of a run after a part, from its beginning."""

    pieces: int = 0
    """Pieces of text that the model has read."""
    documents: int = 0
    units: int = 0
    missing: int = 0
    """Units without a vector."""
    tokens: int = 0
    windows: int = 0


def schema(size: int, number: Number) -> Any:
    """A row for each unit."""
    return pa.schema(
        [
            ("document", pa.int64()),
            ("source", pa.string()),
            ("line", pa.int64()),
            ("unit", pa.int64()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("text", pa.string()),
            ("vector", pa.list_(pa.float32() if number == "float32" else pa.float16(), size)),
        ]
    )


def unit_lines(piece: LocatedText, vectors: Vectors) -> list[int]:
    """The line of the file in which each unit begins."""
    if not piece.lines:
        return [piece.line] * len(vectors)
    breaks = np.cumsum(np.frombuffer(piece.text.encode("utf-32-le", "surrogatepass"), "<u4") == ord("\n"))
    starts = np.asarray(vectors.spans)[:, 0]
    before = np.concatenate([[0], breaks])[np.minimum(starts, len(breaks))]
    return (piece.line + before).tolist()  # type: ignore[no-any-return]


def rows(pieces: Sequence[LocatedText], embedded: Sequence[Vectors], kind: Any) -> Any:
    """The record batch of a part; a missing vector is null."""
    counts = [len(vectors) for vectors in embedded]
    size = kind.field("vector").type.list_size
    matrix = np.concatenate([vectors.vectors for vectors in embedded])
    spans = np.concatenate([v.spans + p.start for p, v in zip(pieces, embedded, strict=True)])
    missing = np.isnan(matrix[:, 0])
    flat = pa.array(matrix.astype(kind.field("vector").type.value_type.to_pandas_dtype()).reshape(-1))

    def each(values: list[Any]) -> Any:
        return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]

    columns = [
        pa.array(each([p.document for p in pieces]), pa.int64()),
        pa.array(each([p.source for p in pieces]), pa.string()),
        pa.array([line for p, v in zip(pieces, embedded, strict=True) for line in unit_lines(p, v)], pa.int64()),
        pa.array([p.unit + n for p, count in zip(pieces, counts, strict=True) for n in range(count)], pa.int64()),
        pa.array(spans[:, 0], pa.int64()),
        pa.array(spans[:, 1], pa.int64()),
        pa.array([text for vectors in embedded for text in vectors.units], pa.string()),
        pa.FixedSizeListArray.from_arrays(flat, size, mask=pa.array(missing)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=kind)


class VectorParts(PartsFolder[BulkProgress]):
    """The folder of one run; see `data/bulk/parts.py`."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        super().__init__(directory, settings, kind=BulkProgress, suffix=".arrow")

    def add(self, batch: Any, counts: BulkProgress, faults: Sequence[str] = ()) -> None:
        def part(aside: Path) -> None:
            with pa.OSFile(os.fsencode(aside), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)

        self.write(part, counts, size=batch.nbytes, faults=faults)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """All rows, a part at a time, mapped from the disk."""
        for path in self.paths():
            with _opened(path) as reader:
                for index in range(reader.num_record_batches):
                    batch = reader.get_batch(index)
                    yield batch if columns is None else batch.select(list(columns))


def _opened(path: Path) -> Any:
    try:
        return pa.ipc.open_file(pa.memory_map(os.fsencode(path)))
    except (pa.ArrowException, OSError) as fault:
        raise ArtefactError(f"{path} is damaged ({fault}); remove {path.parent} and start again") from fault


_COUNTS = ("document", "line", "unit", "start", "end")
_TYPES = {"float32": "F32", "float16": "F16"}


def check_format(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise UsageError(f"{out} names no known format; end it in {', '.join(FORMATS)}")


def assemble(parts: VectorParts, out: Path, kind: Any, units: int) -> None:
    """Write the file of a finished run."""
    size = units * _bytes(kind)
    with new_output(out, size) as aside:
        FORMATS[out.suffix](parts, aside, kind, units)


def _bytes(kind: Any) -> int:
    """Bytes of one vector."""
    vector = kind.field("vector").type
    return int(vector.list_size) * int(vector.value_type.bit_width) // 8


def _described(parts: VectorParts, kind: Any) -> Any:
    return kind.with_metadata({"larvatus": json.dumps(parts.settings, sort_keys=True)})


def _parquet(parts: VectorParts, aside: Path, kind: Any, _units: int) -> None:
    described = _described(parts, kind)
    with (
        aside.open("wb") as file,  # pyarrow does not open names that are not UTF-8
        pq.ParquetWriter(file, described, compression="zstd", use_dictionary=["source"]) as writer,
    ):
        for batch in parts.batches():
            writer.write_batch(batch.replace_schema_metadata(described.metadata))


def _arrow(parts: VectorParts, aside: Path, kind: Any, _units: int) -> None:
    described = _described(parts, kind)
    with pa.OSFile(os.fsencode(aside), "wb") as sink, pa.ipc.new_file(sink, described) as writer:
        for batch in parts.batches():
            writer.write_batch(batch.replace_schema_metadata(described.metadata))


def _npy(parts: VectorParts, aside: Path, kind: Any, units: int) -> None:
    vector = kind.field("vector").type
    dtype = np.dtype(vector.value_type.to_pandas_dtype())
    with aside.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": dtype.str, "fortran_order": False, "shape": (units, vector.list_size)}
        )
        for matrix in _matrices(parts):
            file.write(matrix.tobytes())


def _safetensors(parts: VectorParts, aside: Path, kind: Any, units: int) -> None:
    """Written by hand, because the library needs all tensors in memory; the header is known beforehand."""
    vector = kind.field("vector").type
    sources = {name: index for index, name in enumerate(_names(parts))}
    dtype = str(vector.value_type.to_pandas_dtype().__name__)
    shapes = {"vectors": (_TYPES[dtype], [units, vector.list_size], units * _bytes(kind))}
    shapes |= {name: ("I64", [units], 8 * units) for name in (*_COUNTS, "source")}
    settings = json.dumps(parts.settings, sort_keys=True)
    header: dict[str, Any] = {"__metadata__": {"larvatus": settings, "sources": json.dumps(list(sources))}}
    place = 0
    for name, (code, shape, size) in shapes.items():
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with aside.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for matrix in _matrices(parts):
            file.write(matrix.tobytes())
        for name in _COUNTS:
            for batch in parts.batches([name]):
                file.write(batch.column(0).to_numpy().astype("<i8").tobytes())
        for batch in parts.batches(["source"]):
            numbers = [sources[name] for name in batch.column(0).to_pylist()]
            file.write(np.array(numbers, dtype="<i8").tobytes())


def _names(parts: VectorParts) -> list[str]:
    names: dict[str, None] = {}
    for batch in parts.batches(["source"]):
        names.update(dict.fromkeys(batch.column(0).unique().to_pylist()))
    return list(names)


def _matrices(parts: VectorParts) -> Iterator[npt.NDArray[Any]]:
    """The vectors of each part, [U, D]; NaN if missing (the value under a null)."""
    for batch in parts.batches(["vector"]):
        column = batch.column(0)
        flat = column.values.slice(column.offset * column.type.list_size, len(column) * column.type.list_size)
        yield flat.to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


FORMATS: dict[str, Callable[[VectorParts, Path, Any, int], None]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".safetensors": _safetensors,
    ".npy": _npy,
}
