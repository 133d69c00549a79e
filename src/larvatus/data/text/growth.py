"""How much a file may unpack to: a few bytes that unpack to terabytes are refused while they are read.

    growth = Growth("text.zst", ratio=1_000, floor=4 << 20)
    growth.take(65_536, packed=12)                        # raises DataError once it is too much

Memory is bounded by those who read in chunks; this bounds the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larvatus.core.errors import DataError

PARQUET_RATIO, PARQUET_FLOOR = 250, 64 << 20
"""Texts that repeat are written once in Parquet, so that honest files shrink much too."""
LONGEST_CELL = 64 << 20
"""Bytes of a text in a table; a longer one is no text of a document."""


@dataclass
class Growth:
    """Bytes that were unpacked so far, and from how many."""

    name: str
    ratio: int
    floor: int
    """Bytes that are always unpacked."""
    packed: int = 0
    unpacked: int = 0

    def take(self, unpacked: int, *, packed: int = 0) -> None:
        self.unpacked += unpacked
        self.packed += packed
        if self.unpacked > max(self.floor, self.ratio * self.packed):
            raise DataError(
                f"{self.name}: {self.packed:,} bytes unpack to more than {self.unpacked:,}, as no text does; "
                "if it is meant so, unpack the file first"
            )


def parquet_growth(name: str, size: int) -> Growth:
    return Growth(name, PARQUET_RATIO, PARQUET_FLOOR, packed=size)


def text_columns(schema: Any) -> list[str]:
    """Columns of strings: read as dictionaries, a text that repeats is held once."""
    return [field.name for field in schema if _is_text(field.type)]


def take_batch(growth: Growth, batch: Any) -> None:
    """Count the bytes that the rows of a batch become, before any of them becomes a string."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        sizes = _sizes(column)
        if sizes is None:
            growth.take(column.nbytes)
            continue
        longest = pc.max(sizes).as_py() or 0
        if longest > LONGEST_CELL:
            raise DataError(
                f"{growth.name}: column {name!r} holds a text of {longest:,} bytes; more than {LONGEST_CELL:,} are "
                "refused; split it"
            )
        growth.take(pc.sum(pc.cast(sizes, pa.int64())).as_py() or 0)


def _sizes(column: Any) -> Any:
    """Bytes of each string; None of other columns."""
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        return pc.binary_length(column.dictionary).take(column.indices)
    return pc.binary_length(column) if _is_text(kind) else None


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
