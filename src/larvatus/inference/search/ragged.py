"""Records of an index of which every passage has its own number: vectors of tokens, or tokens with weights.

    records.bin            all records, passage after passage
    records.starts.npy     [N + 1] where the records of each passage begin, and where the last end

    kept = RaggedRecords.open(folder, np.dtype([("token", np.int32), ("weight", np.float32)]), count=1000)
    kept.of(np.array([7, 2]))            # the records of passages 7 and 2, and how many each has

Both files are mapped from the disk. A build streams them, so that a full disk is an error and not a signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from larvatus.core.arrays import Ints, Records
from larvatus.core.batch import edges, runs
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there
from larvatus.inference.search.quantised import Kind
from larvatus.models.heads.head import VectorKind

RECORDS, STARTS = "records.bin", "records.starts.npy"
AGAIN = "build it again with larvatus search build"
WEIGHT = np.dtype([("token", np.int32), ("weight", np.float32)])
"""A token of the vocabulary with its weight."""


def write_header(file: IO[bytes], dtype: Any, shape: tuple[int, ...]) -> None:
    """The header of a `.npy` file whose rows follow; as a stream, so that a full disk is an error and not a signal."""
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)


def token_record(size: int) -> np.dtype[np.void]:
    """The vector of a token: `size` numbers of 8 bits, and their scale."""
    return np.dtype([("codes", np.int8, (size,)), ("scale", np.float32)])


def record_type(kind: VectorKind, size: int) -> np.dtype[np.void] | None:
    """The type of the records of a passage; None where it has none."""
    return {"dense": None, "late": token_record(size), "sparse": WEIGHT}[kind]


def stored_kinds(kind: VectorKind, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """How the unit vectors of an index are stored; a sparse one has none."""
    return () if kind == "sparse" else kinds


class Run(NamedTuple):
    """Some passages in order, with their records."""

    passages: Ints
    records: Records
    counts: Ints
    """Records of each passage."""


class RaggedRecords:
    """The records of N passages."""

    def __init__(self, records: Records, starts: Ints) -> None:
        self.records, self.starts = records, starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def open(cls, folder: Path, dtype: np.dtype[np.void], count: int) -> RaggedRecords:
        """Map the records of a generation; files that do not fit each other are refused."""
        try:
            starts: Ints = np.load(folder / STARTS)
        except (OSError, ValueError) as fault:
            raise ArtefactError(f"{folder / STARTS} cannot be read ({fault}); {AGAIN}") from fault
        if starts.shape != (count + 1,) or starts.dtype != np.int64 or starts[0] != 0 or (np.diff(starts) < 0).any():
            raise ArtefactError(f"{folder / STARTS} does not fit the passages; {AGAIN}")
        size = (folder / RECORDS).stat().st_size if is_there(folder / RECORDS) else -1
        if size != int(starts[-1]) * dtype.itemsize:
            raise ArtefactError(f"{folder / RECORDS} does not fit {STARTS}; {AGAIN}")
        records: Records = np.memmap(folder / RECORDS, dtype, mode="r") if size else np.zeros(0, dtype)
        return cls(records, starts)

    def of(self, rows: Ints) -> Run:
        """The records of some passages."""
        parts = [self.records[self.starts[row] : self.starts[row + 1]] for row in rows.tolist()]
        joined = np.concatenate(parts) if parts else self.records[:0]
        return Run(rows, joined, self.starts[rows + 1] - self.starts[rows])

    def blocks(self, most: int, rows: Ints | None = None) -> Iterator[Run]:
        """All passages in order, or some, in blocks of at most `most` records, or of one passage that has more."""
        if rows is None:
            for first, last in runs(np.diff(self.starts), most):
                records = self.records[self.starts[first] : self.starts[last]]
                yield Run(np.arange(first, last), records, np.diff(self.starts[first : last + 1]))
            return
        for first, last in runs(self.starts[rows + 1] - self.starts[rows], most):
            yield self.of(rows[first:last])


def write_records(folder: Path, records: Iterable[list[bytes]], itemsize: int) -> None:
    """Write the records of all passages, which come as bytes, some passages at a time."""
    counts: list[int] = []
    with (folder / RECORDS).open("wb") as file:
        for block in records:
            counts += [len(each) // itemsize for each in block]
            file.write(b"".join(block))
    with (folder / STARTS).open("wb") as file:
        write_header(file, np.dtype(np.int64), (len(counts) + 1,))
        file.write(edges(np.array(counts, np.int64)).tobytes())
