"""How an index stores its vectors: one for each passage, or a record for each token.

    >>> stored = StoredVectors.encode(np.array([[0.6, -0.8]]), ("int8",))
    >>> {name: array.dtype.name for name, array in stored.items()}
    {'vectors.int8': 'int8', 'scales': 'float32'}

Vectors are float32, float16, int8 with a scale for each vector, or one bit for each dimension. For a unit vector x,
int8 keeps c = round(x / s) with s = max |x| / 127, so that x · q ≈ s (c · q): each number is off by at most s / 2.
Binary keeps the signs b = [x > 0]; with those of the query, the number of equal bits orders vectors nearly as their
angle does (Charikar 2002). Queries stay float32 except for binary. An index that stores two kinds is searched with the
first, and the candidates are scored again with the second (Yamada et al. 2021).

Records are vectors of tokens, or tokens with weights, of which every passage has its own number (`RaggedRecords`):

    records.bin            all records, passage after passage
    records.starts.npy     [N + 1] where the records of each passage begin, and where the last end

Both files are mapped from the disk. A build streams them, so that a full disk is an error and not a signal. N passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Bits, Doubles, Floats, Ints, Records
from larvatus.core.batch import edges, runs
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Flag, Settings
from larvatus.models.heads.head import VectorKind

Kind = Literal["float32", "float16", "int8", "binary"]
Arrays = Mapping[str, Records]
SCALES = "scales"
ONE_THREAD = 32_768
"""Most numbers that torch converts with one thread (at::internal::GRAIN_SIZE)."""
WORD = 64
"""Bits that are compared at once: rows of bits are filled up to whole words."""
NUMBERS, FEWER_BITS = 1 << 18, 1 << 22
"""Numbers of a block: in float32, 1 MiB, which stay in the cache of most processors; more of those read as stored."""
LOW = 2048.0
"""What the rest of a rounded number is multiplied by: 2¹¹, so that float16 keeps all its digits."""


class VectorFormat(Settings):
    """How vectors are stored."""

    dtype: Kind = "float16"
    """Numbers that are searched: float32, float16, int8 (a quarter of float32) or binary (a 32nd)."""
    rescore: Annotated[Literal["none", "int8", "float16"] | None, Flag(metavar="DTYPE")] = None
    """Also store int8 or float16, to score candidates of int8 or binary again (binary: int8 by default)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in get_args(Kind):
            raise UsageError(f"--dtype {self.dtype!r} is none; use {', '.join(get_args(Kind))}")
        if self.rescore not in (None, "none", "int8", "float16"):
            raise UsageError(f"--rescore {self.rescore!r} is none; use none, int8 or float16")
        if self.rescore not in (None, "none") and self.dtype not in ("int8", "binary"):
            raise UsageError(f"--rescore is for int8 and binary vectors, and these are {self.dtype}; leave it out")
        if self.dtype == self.rescore == "int8":
            raise UsageError("int8 vectors cannot be rescored with themselves; use --rescore float16, or leave it out")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds that are stored: the kind that is searched, then the kind that candidates are rescored with, if any."""
        second = ("int8" if self.dtype == "binary" else "none") if self.rescore is None else self.rescore
        return (self.dtype,) if second == "none" else (self.dtype, second)


def file_of(kind: Kind) -> str:
    """Name of the array that holds vectors of a kind."""
    return f"vectors.{kind}"


class StoredVectors:
    """N vectors of D dimensions in one or two kinds, usually mapped from the disk."""

    def __init__(self, arrays: Arrays, kinds: Sequence[Kind], size: int) -> None:
        self.arrays, self.kinds, self.size = arrays, tuple(kinds), size

    def __len__(self) -> int:
        return len(self.arrays[file_of(self.kinds[0])])

    @property
    def in_float32(self) -> bool:
        """Whether numbers are multiplied in float32, and first converted to it."""
        kind = self.kinds[0]
        return kind in ("float32", "int8") or (kind == "float16" and not has_half_products())

    @property
    def block(self) -> int:
        """Rows that are scored at once."""
        return max(1, (NUMBERS if self.in_float32 else FEWER_BITS) // self.size)

    @staticmethod
    def shapes(kinds: Sequence[Kind], size: int) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
        """Type and row shape of each array."""
        shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {}
        for kind in kinds:
            if kind == "binary":
                shapes[file_of(kind)] = (np.dtype(np.uint64), (-(-size // WORD),))
            else:
                shapes[file_of(kind)] = (np.dtype(kind), (size,))
            if kind == "int8":
                shapes[SCALES] = (np.dtype(np.float32), ())
        return shapes

    @staticmethod
    def encode(x_ND: Floats, kinds: Sequence[Kind]) -> dict[str, Records]:
        """Unit vectors as the arrays that are stored."""
        arrays: dict[str, Records] = {}
        for kind in kinds:
            if kind == "binary":
                arrays[file_of(kind)] = sign_bits(x_ND)
            elif kind == "int8":
                arrays[file_of(kind)], arrays[SCALES] = to_int8(x_ND)
            else:
                arrays[file_of(kind)] = x_ND.astype(kind)
        return arrays

    def scores(self, rows: Any, queries_QD: Floats, buffer_BD: Floats | None = None) -> Floats:
        """Scores [Q, B] of some rows (a slice or numbers) with the kind that is searched; larger is nearer.

        `buffer_BD` is memory for these rows in float32, if they are converted.
        """
        kind = self.kinds[0]
        if kind == "binary":
            words_BW = self.arrays[file_of(kind)][rows]
            query_QW = sign_bits(queries_QD)
            apart_QB = np.zeros((len(queries_QD), len(words_BW)), dtype=np.uint16)
            for word in range(words_BW.shape[1]):
                apart_QB += np.bitwise_count(query_QW[:, word, None] ^ words_BW[None, :, word])
            return 1.0 - apart_QB.astype(np.float32) * np.float32(2.0 / self.size)
        stored_BD = np.asarray(self.arrays[file_of(kind)][rows])
        if kind == "float16" and has_half_products():
            return half_products(stored_BD, queries_QD)
        scores_QB: Floats = queries_QD @ as_float32(stored_BD, buffer_BD).T
        return scores_QB * np.asarray(self.arrays[SCALES][rows]) if kind == "int8" else scores_QB

    def rescored(self, rows: Ints, query_D: Floats) -> Doubles:
        """Cosines [B] of some rows in float64, with the last kind; equal vectors get equal scores."""
        if self.kinds[-1] == "binary":
            agreement_B: Doubles = self.scores(rows, query_D[None])[0].astype(np.float64)
            return agreement_B
        products_BD = self.decode(rows, self.kinds[-1]).astype(np.float64) * query_D.astype(np.float64)
        cosines_B: Doubles = products_BD.sum(axis=1)
        return cosines_B

    def decode(self, rows: Any, kind: Kind) -> Floats:
        """Some vectors as float32 [B, D]."""
        x_BD = as_float32(self.arrays[file_of(kind)][rows])
        return x_BD * np.asarray(self.arrays[SCALES][rows])[:, None] if kind == "int8" else x_BD


def as_float32(numbers: Records, buffer: Floats | None = None) -> Floats:
    """Numbers as float32: by torch, which converts half precision several times as fast as NumPy.

    Written into the first rows of `buffer`, if there is one, few enough at a time that torch uses one thread: to wake
    and join several for each small block takes many times as long as the conversion.
    """
    if numbers.dtype == np.float32 or not numbers.flags.writeable:
        return np.asarray(numbers).astype(np.float32, copy=False)
    whole = torch.from_numpy(np.ascontiguousarray(numbers))
    if buffer is None:
        converted: Floats = whole.float().numpy()
        return converted
    rows: Floats = buffer[: len(numbers)]
    step = max(1, ONE_THREAD // max(1, whole[0].numel() if len(whole) else 1))
    for part, values in zip(torch.from_numpy(rows).split(step), whole.split(step), strict=True):
        part.copy_(values)
    return rows


def to_int8(x_ND: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Codes from -127 to 127, and the scale of each vector (1 for a vector of zeros)."""
    scales_N = (np.abs(x_ND).max(axis=1, initial=0.0) / 127.0).astype(np.float32)
    scales_N[scales_N == 0] = 1.0
    return np.clip(np.rint(x_ND / scales_N[:, None]), -127, 127).astype(np.int8), scales_N


def sign_bits(x_ND: Floats) -> Bits:
    """Bit d of a vector: whether its number d is above 0; the rest of the last word is 0."""
    packed_NB = np.packbits(x_ND > 0, axis=1)
    fill = -packed_NB.shape[1] % (WORD // 8)
    return np.ascontiguousarray(np.pad(packed_NB, ((0, 0), (0, fill)))).view(np.uint64)


@cache
def has_half_products() -> bool:
    return find_spec("numkong") is not None


def half_products(x_BD: Records, queries_QD: Floats) -> Floats:
    """Scalar products [Q, B] of float16 vectors with float32 queries, without a copy of the vectors in float32.

    >>> half_products(np.array([[0.5, 0.25]], np.float16), np.array([[0.6, 0.8]], np.float32)).tolist()
    [[0.5]]

    The library `numkong`, which comes with `usearch` (the extra `index`), multiplies float16 by float16 and adds up in
    float32. A query therefore goes in as two float16 vectors, the second for what rounding took from the first,

        q ≈ h + l / 2¹¹        h = float16(q), l = float16(2¹¹ (q − h))        x · q ≈ x · h + x · l / 2¹¹

    which keeps 22 bits of each number, as many as the additions in float32 do. B vectors, Q queries, D dimensions.
    """
    from numkong import dots_pack, dots_packed

    high_QD = queries_QD.astype(np.float16)
    low_QD = ((queries_QD - high_QD.astype(np.float32)) * np.float32(LOW)).astype(np.float16)
    both = dots_pack(np.concatenate([high_QD, low_QD]))
    high_BQ, low_BQ = np.split(np.asarray(dots_packed(np.ascontiguousarray(x_BD), both)), 2, axis=1)
    products_QB: Floats = np.ascontiguousarray((high_BQ + low_BQ / np.float32(LOW)).T)
    return products_QB


# Records.

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
