"""Vectors on their way to a file: a folder of Arrow parts, each whole or absent, so that a killed run goes on.

OUT.parts/run.json        what is being computed; a run with other settings may not go on with it
OUT.parts/parts.jsonl     a line for each part: its checksum, and how far the run had come
OUT.parts/00000.arrow     the first few thousand units with their vectors

All of it is vouched for (`vouched.py`): a part that is missing or changed is refused by name before anything is added.
"""

from __future__ import annotations

import os
import shutil
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
from larvatus.vouched import Ledger, check_file, read_vouched, write_vouched

Number = Literal["float32", "float16"]
RUN, LEDGER = "run.json", "parts.jsonl"


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


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the ledger."""

    sha256: str
    stand: Stand


class Parts:
    """The folder of one run; what stands in it is read by `open`, and grows with `add`."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.directory, self.settings = directory, settings
        self._way = f"remove {directory} to begin anew"
        self._ledger: Ledger | None = None
        self._parts: list[_Part] = []

    def open(self, *, resume: bool) -> Stand:
        """Begin, or go on: where the run stands. What another run left is neither mixed in nor overwritten."""
        only_regular(self.directory)
        files.sweep(self.directory)
        self._ledger = Ledger(self.directory / LEDGER, way=self._way)
        if not self._ledger.records:
            if self._path(1).exists():  # the first may stand unlisted after a kill, another may not
                raise ArtefactError(f"{self._ledger.path} lists no parts, but there are some; {self._way}")
            write_vouched(self.directory / RUN, self.settings)
            self._ledger.begin([])
            return Stand()
        if not resume:
            raise ArtefactError(
                f"{self.directory} holds an unfinished run; go on with --resume, or remove it to begin anew"
            )
        before = read_vouched(self.directory / RUN, way=self._way)
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
        try:
            self._parts = [msgspec.json.decode(record, type=_Part) for record in self._ledger.records]
        except msgspec.MsgspecError as fault:
            raise ArtefactError(f"{self._ledger.path} lists no parts ({fault}); {self._way}") from fault
        for path, part in zip(self.paths(), self._parts, strict=True):
            check_file(path, part.sha256, way=self._way)
        self._ledger.begin(self._ledger.records)
        return self.stand()

    def paths(self) -> list[Path]:
        """The parts in order."""
        return [self._path(number) for number in range(len(self._parts))]

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:05d}.arrow"

    def stand(self) -> Stand:
        return self._parts[-1].stand if self._parts else Stand()

    def add(self, batch: Any, stand: Stand) -> None:
        path = self._path(len(self._parts))
        with (
            files.new_file(path, batch.nbytes) as aside,
            pa.OSFile(os.fsencode(aside), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)
        part = _Part(sha256=files.sha256(path), stand=stand)
        assert self._ledger is not None, "opened before anything is added"
        self._ledger.append(part)
        self._parts.append(part)

    def remove(self) -> None:
        """The run is done. The ledger goes last, so that `removed` can still say how far it came after a kill."""
        for path in self.directory.glob("*.arrow"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.directory)

    def removed(self) -> Stand:
        """Where the result stands already, only what was left to remove is removed."""
        records = Ledger(self.directory / LEDGER, way=self._way).records
        self.remove()
        return msgspec.json.decode(records[-1], type=_Part).stand if records else Stand()

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
