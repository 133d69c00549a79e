"""Vectors on their way to a file: a folder of Arrow parts (`data/bulk/parts.py`), some thousand units in each.

parts = Parts(Path("vectors.parquet.parts"), settings)
stand = parts.open(resume=True)
parts.add(rows(block, embedded, kind), stand)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from larvatus.core.errors import ArtefactError
from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import PartsFolder
from larvatus.inference.vectors.results import Vectors

Number = Literal["float32", "float16"]


class Stand(Settings):
    """How far a run has come after a part: sums from the beginning."""

    pieces: int = 0
    """Pieces of text that went through the model."""
    documents: int = 0
    units: int = 0
    missing: int = 0
    """Units without a vector."""
    tokens: int = 0
    windows: int = 0


@dataclass(frozen=True)
class Piece:
    """One text for the model, and where it comes from."""

    text: str
    document: int
    source: str
    line: int
    unit: int = 0
    """Number of its first unit in the document."""
    start: int = 0
    """Character of the document where it begins."""
    lines: bool = True
    """Whether its line breaks are those of the file: not so of a record, which stands in one line of JSONL."""

    def line_at(self, start: int) -> int:
        """The line of the file in which a character of the text stands."""
        return self.line + self.text.count("\n", 0, start) if self.lines else self.line


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


def unit_lines(piece: Piece, vectors: Vectors) -> list[int]:
    """The line of the file that each unit begins in."""
    if not piece.lines:
        return [piece.line] * len(vectors)
    breaks = np.cumsum(np.frombuffer(piece.text.encode("utf-32-le", "surrogatepass"), "<u4") == ord("\n"))
    starts = np.asarray(vectors.spans)[:, 0]
    before = np.concatenate([[0], breaks])[np.minimum(starts, len(breaks))]
    return (piece.line + before).tolist()  # type: ignore[no-any-return]


def rows(pieces: Sequence[Piece], embedded: Sequence[Vectors], kind: Any) -> Any:
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


class Parts(PartsFolder[Stand]):
    """The folder of one run; see `data/bulk/parts.py`."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        super().__init__(directory, settings, kind=Stand, suffix=".arrow")

    def add(self, batch: Any, stand: Stand, faults: Sequence[str] = ()) -> None:
        def part(aside: Path) -> None:
            with pa.OSFile(os.fsencode(aside), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)

        self.write(part, stand, size=batch.nbytes, faults=faults)

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
        raise ArtefactError(f"{path} is damaged ({fault}); remove {path.parent} and begin anew") from fault
