"""From parts to one file, in the format that its name says, a part at a time.

    .parquet .arrow    a row for each unit: document, source, line, unit, start, end, text, vector (null where missing)
    .safetensors       `vectors` [U, D] with `document`, `source`, `line`, `unit`, `start`, `end` [U]; `source` is a
                       number in the list of names in the file's metadata; the texts of units are left out
    .npy               the vectors alone, [U, D]

A missing vector is NaN in the last two. The file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.errors import UsageError
from larvatus.core.outputs import new_output
from larvatus.inference.vectors.bulk.parts import Parts

_COUNTS = ("document", "line", "unit", "start", "end")
_TYPES = {"float32": "F32", "float16": "F16"}


def check_format(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise UsageError(f"{out} names no known format; end it in {', '.join(FORMATS)}")


def assemble(parts: Parts, out: Path, kind: Any, units: int) -> None:
    """Write the file of a finished run."""
    size = units * _bytes(kind)
    with new_output(out, size) as aside:
        FORMATS[out.suffix](parts, aside, kind, units)


def _bytes(kind: Any) -> int:
    """Of one vector."""
    vector = kind.field("vector").type
    return int(vector.list_size) * int(vector.value_type.bit_width) // 8


def _described(parts: Parts, kind: Any) -> Any:
    return kind.with_metadata({"larvatus": json.dumps(parts.settings, sort_keys=True)})


def _parquet(parts: Parts, aside: Path, kind: Any, _units: int) -> None:
    described = _described(parts, kind)
    with (
        aside.open("wb") as file,  # a name that is not UTF-8 is none to pyarrow
        pq.ParquetWriter(file, described, compression="zstd", use_dictionary=["source"]) as writer,
    ):
        for batch in parts.batches():
            writer.write_batch(batch.replace_schema_metadata(described.metadata))


def _arrow(parts: Parts, aside: Path, kind: Any, _units: int) -> None:
    described = _described(parts, kind)
    with pa.OSFile(os.fsencode(aside), "wb") as sink, pa.ipc.new_file(sink, described) as writer:
        for batch in parts.batches():
            writer.write_batch(batch.replace_schema_metadata(described.metadata))


def _npy(parts: Parts, aside: Path, kind: Any, units: int) -> None:
    vector = kind.field("vector").type
    dtype = np.dtype(vector.value_type.to_pandas_dtype())
    with aside.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": dtype.str, "fortran_order": False, "shape": (units, vector.list_size)}
        )
        for matrix in _matrices(parts):
            file.write(matrix.tobytes())


def _safetensors(parts: Parts, aside: Path, kind: Any, units: int) -> None:
    """Written by hand, since the library wants all tensors in memory: the header is known beforehand."""
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


def _names(parts: Parts) -> list[str]:
    names: dict[str, None] = {}
    for batch in parts.batches(["source"]):
        names.update(dict.fromkeys(batch.column(0).unique().to_pylist()))
    return list(names)


def _matrices(parts: Parts) -> Iterator[npt.NDArray[Any]]:
    """The vectors of each part, [U, D]; NaN where missing (which is what lies beneath a null)."""
    for batch in parts.batches(["vector"]):
        column = batch.column(0)
        flat = column.values.slice(column.offset * column.type.list_size, len(column) * column.type.list_size)
        yield flat.to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


FORMATS: dict[str, Callable[[Parts, Path, Any, int], None]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".safetensors": _safetensors,
    ".npy": _npy,
}
