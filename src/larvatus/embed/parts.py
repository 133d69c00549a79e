"""Vectors on their way to a file: a folder of Arrow parts, each whole or absent, so that a killed run goes on.

OUT.parts/run.json        what is being computed; a run with other settings may not go on with it
OUT.parts/00000.arrow     the first few thousand units with their vectors, and how far the run had come
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from larvatus import files
from larvatus.embed.results import Vectors
from larvatus.errors import ArtefactError
from larvatus.regular_files import only_regular

Number = Literal["float32", "float16"]
RUN = "run.json"
_STAND = b"larvatus"


class Stand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


def unit_lines(piece: Piece, found: Vectors) -> list[int]:
    """The line of the file that each unit begins in."""
    if not piece.lines:
        return [piece.line] * len(found)
    breaks = np.cumsum(np.frombuffer(piece.text.encode("utf-32-le", "surrogatepass"), "<u4") == ord("\n"))
    starts = np.asarray(found.spans)[:, 0]
    before = np.concatenate([[0], breaks])[np.minimum(starts, len(breaks))]
    return (piece.line + before).tolist()  # type: ignore[no-any-return]


def rows(pieces: Sequence[Piece], found: Sequence[Vectors], kind: Any) -> Any:
    """The record batch of a part; a missing vector is null."""
    counts = [len(vectors) for vectors in found]
    size = kind.field("vector").type.list_size
    matrix = np.concatenate([vectors.vectors for vectors in found])
    spans = np.concatenate([v.spans + p.start for p, v in zip(pieces, found, strict=True)])
    missing = np.isnan(matrix[:, 0])
    flat = pa.array(matrix.astype(kind.field("vector").type.value_type.to_pandas_dtype()).reshape(-1))

    def each(values: list[Any]) -> Any:
        return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]

    columns = [
        pa.array(each([p.document for p in pieces]), pa.int64()),
        pa.array(each([p.source for p in pieces]), pa.string()),
        pa.array([line for p, v in zip(pieces, found, strict=True) for line in unit_lines(p, v)], pa.int64()),
        pa.array([p.unit + n for p, count in zip(pieces, counts, strict=True) for n in range(count)], pa.int64()),
        pa.array(spans[:, 0], pa.int64()),
        pa.array(spans[:, 1], pa.int64()),
        pa.array([text for vectors in found for text in vectors.units], pa.string()),
        pa.FixedSizeListArray.from_arrays(flat, size, mask=pa.array(missing)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=kind)


@dataclass(frozen=True)
class Parts:
    """The folder of one run."""

    directory: Path
    settings: dict[str, Any]

    def open(self, *, resume: bool) -> Stand:
        """Begin, or go on: where the run stands. What another run left is neither mixed in nor overwritten."""
        begun = self.directory / RUN
        only_regular(self.directory)
        files.sweep(self.directory)
        if not self.paths():
            files.write_json(begun, self.settings)
            return Stand()
        if not resume:
            raise ArtefactError(
                f"{self.directory} holds an unfinished run; go on with --resume, or remove it to begin anew"
            )
        before = files.read_json(begun)
        changed = [
            f"{name} was {before.get(name)!r}, now {self.settings.get(name)!r}"
            for name in sorted({*before, *self.settings})
            if before.get(name) != self.settings.get(name)
        ]
        if changed:
            raise ArtefactError(
                f"{self.directory} was begun with other settings ({'; '.join(changed)}); "
                "use the same, or remove it to begin anew"
            )
        return self.stand()

    def paths(self) -> list[Path]:
        """The parts in order, as far as none is missing."""
        found: list[Path] = []
        while (path := self.directory / f"{len(found):05d}.arrow").exists():
            found.append(path)
        return found

    def stand(self) -> Stand:
        paths = self.paths()
        if not paths:
            return Stand()
        with _opened(paths[-1]) as reader:
            return msgspec.json.decode(reader.schema.metadata[_STAND], type=Stand)

    def add(self, batch: Any, stand: Stand) -> None:
        path = self.directory / f"{len(self.paths()):05d}.arrow"
        kind = batch.schema.with_metadata({_STAND: msgspec.json.encode(stand)})
        with (
            files.new_file(path, batch.nbytes) as aside,
            pa.OSFile(os.fsencode(aside), "wb") as sink,
            pa.ipc.new_file(sink, kind) as writer,
        ):
            writer.write_batch(batch.replace_schema_metadata(kind.metadata))

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
