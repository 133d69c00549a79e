"""Tensors in files: safetensors, and nothing else. Nothing is ever unpickled.

A safetensors file has a JSON header with the place of each tensor. We check that header against the size of the file
before anything is allocated, so that a false one costs nothing; then the `safetensors` library reads the tensors.

    8 bytes    n, the length of the header (little-endian)
    n bytes    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
    the rest   the tensors, end to end: no overlap, no hole, nothing left over

Example: ``read_tensors(Path("model.safetensors"))["bert.pooler.dense.bias"]``

The CRF of a tagger has a file of its own, `crf.safetensors`: no model of `transformers` has a place for it, so there
the directory is a tagger without a CRF. In our own layout the CRF is among the other weights, and there is no such
file.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.files import standing
from larvatus.core.regular_files import is_there, open_regular, read_bytes

LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
MOST_DIMENSIONS = 64  # torch's own limit; also keeps the product of a hostile shape small
INT8 = "model.int8.safetensors"
"""Weights as 8-bit integers (`weight_files.py`)."""
PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
_FLOATS = ("F16", "BF16", "F32", "F64")
_ARCHIVES = (b"PK", b"\x80\x01", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of zip archives and pickles (pickles of protocol 0 and 1 have none, and are not safetensors either)."""
_SHOWN = 8

_Count = Annotated[int, msgspec.Meta(ge=0)]
Shape = tuple[int, ...]


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header's entry for one tensor."""

    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


def refuse_pickle(path: Path) -> None:
    """Refuse a pickle by its name: reading one can run any code."""
    if path.suffix.lower() in PICKLED:
        raise ArtefactError(
            f"{path} is pickled, and reading a pickle can run code, so Larvatus never does; if you trust it, convert "
            "it: transformers' AutoModelForPreTraining.from_pretrained(…).save_pretrained(…) writes "
            "model.safetensors"
        )


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Names, types, shapes and offsets of all tensors, checked against the size of the file."""
    refuse_pickle(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            first = file.read(9)
            length = int.from_bytes(first[:8], "little")
            if first.startswith(_ARCHIVES) and first[8:] != b"{":  # a header of 640 bytes also begins like a pickle
                raise ArtefactError(f"{path} is a zip archive or a pickle, not safetensors; it was not read")
            if len(first) < 8 or length > size - 8:
                raise _broken(path, f"it is truncated: {size:,} bytes, and its header should have {length:,}")
            if length > LARGEST_HEADER:
                raise _broken(path, f"its header claims {length:,} bytes, more than the limit of {LARGEST_HEADER:,}")
            header = first[8 : 8 + length] + file.read(max(0, length - 1))
        except OSError as fault:
            raise ArtefactError(f"{path} cannot be read: {fault.strerror}") from fault
    entries = _parse(path, header)
    _check_layout(path, entries, size - 8 - length)
    return entries


def _parse(path: Path, header: bytes) -> dict[str, TensorEntry]:
    try:
        parts = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        msgspec.json.decode(parts.pop("__metadata__", msgspec.Raw(b"{}")), type=dict[str, str])
        decoder = msgspec.json.Decoder(TensorEntry)
        return {name: decoder.decode(part) for name, part in parts.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise _broken(path, f"its header is not what safetensors writes: {fault}") from fault


def _check_layout(path: Path, entries: Mapping[str, TensorEntry], size: int) -> None:
    """Check that every tensor is as long as its shape requires, and that together they fill exactly `size` bytes."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        if entry.dtype not in _SIZES:
            raise _broken(path, f"tensor {name!r} has type {entry.dtype!r}; supported are {', '.join(_SIZES)}")
        if len(entry.shape) > MOST_DIMENSIONS:
            raise _broken(path, f"tensor {name!r} has {len(entry.shape)} dimensions")
        needed = math.prod(entry.shape) * _SIZES[entry.dtype]  # Python's integers do not overflow
        if end - begin != needed:
            raise _broken(
                path, f"tensor {name!r} of shape {list(entry.shape)} needs {needed:,} bytes, not {end - begin:,}"
            )
        if begin != reached:
            raise _broken(
                path, f"tensor {name!r} {'overlaps another' if begin < reached else 'follows a hole'} at byte {begin:,}"
            )
        reached = end
    if reached != size:
        raise _broken(path, f"its tensors take {reached:,} bytes, but {size:,} follow the header")


def _broken(path: Path, why: str) -> ArtefactError:
    return ArtefactError(f"{path} is not a sound safetensors file: {why}; fetch or save it again")


def check_float(path: Path, name: str, entry: TensorEntry) -> None:
    """Refuse weights that are not floating-point numbers."""
    if entry.dtype not in _FLOATS:
        raise ArtefactError(
            f"{path}: tensor {name!r} is of type {entry.dtype}, but weights must be {', '.join(_FLOATS)}; fetch or "
            "save it again"
        )


def iter_tensors(path: Path, *, allow_nan: bool = False, integers: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in turn, so that a caller who casts or copies never holds the file twice.

    `integers` allows integer tensors, which the caller distinguishes.
    """
    entries = read_header(path)
    for name, entry in entries.items() if not integers else ():
        check_float(path, name, entry)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in entries:
                tensor: Tensor = file.get_tensor(name)
                if not allow_nan and not _finite(tensor):
                    raise ArtefactError(
                        f"{path}: tensor {name!r} holds NaN or infinity, at least as float32; allow_nan=True reads it "
                        "anyway"
                    )
                yield name, tensor
    except safetensors.SafetensorError as fault:
        raise _broken(path, str(fault)) from fault


def _finite(tensor: Tensor) -> bool:
    """Also as float32, in which everything is computed."""
    if not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(tensor.float() if tensor.dtype is torch.float64 else tensor).all())


def read_tensors(path: Path, *, allow_nan: bool = False, integers: bool = False) -> dict[str, Tensor]:
    """All tensors of a file whose header is sound; NaN and infinity are refused unless allowed."""
    return dict(iter_tensors(path, allow_nan=allow_nan, integers=integers))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a file in the safetensors format. Failures are an `OSError`, as for any other file."""
    path.touch()
    mode = path.stat().st_mode  # the library writes a temporary file that only its owner may read, and renames it
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        safetensors.torch.save_file(plain, path, metadata={"format": "pt", **(metadata or {})})
    except safetensors.SafetensorError as fault:
        code = re.search(r"os error (\d+)", str(fault))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from fault
    path.chmod(mode)


def stored_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that `write_tensors` will take, without the header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def check_fit(path: Path, *, stored: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> None:
    """Raise one error that lists all missing, extra and misshapen tensors."""
    missing = [name for name in wanted if name not in stored]
    extra = [name for name in stored if name not in wanted]
    misshapen = [
        f"{name} is {list(stored[name])}, not {list(wanted[name])}"
        for name in wanted
        if name in stored and tuple(stored[name]) != tuple(wanted[name])
    ]
    kinds = {"missing": missing, "extra": extra, "misshapen": misshapen}
    if faults := [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]:
        raise ArtefactError(
            f"{path} does not fit the model; {'; '.join(faults)}; take weights and settings from the same place"
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def find_weights(directory: Path) -> list[Path]:
    """The weight files of a model directory: `model.safetensors`, the shards that an index names, or the int8 file."""
    directory = standing(directory)
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if is_there(single):
        return [single]
    if is_there(index):
        return [directory / name for name in _shards(index)]
    if is_there(directory / INT8):
        return [directory / INT8]
    if is_there(directory / ".metadata") or any(directory.glob("*.distcp")):
        raise ArtefactError(
            f"{directory} is a torch distributed checkpoint, whose index is a pickle, so it is not read; if you trust "
            "it, convert it to model.safetensors"
        )
    for path in sorted(directory.iterdir()):
        refuse_pickle(path)
    raise ArtefactError(f"{directory} holds no weights: model.safetensors is missing")


def _shards(index: Path) -> list[str]:
    class ShardIndex(msgspec.Struct):
        weight_map: dict[str, str]
        metadata: dict[str, Any] = {}

    try:
        names = sorted(set(msgspec.json.decode(read_bytes(index), type=ShardIndex).weight_map.values()))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ArtefactError(f"{index} is not an index of safetensors files: {fault}") from fault
    for name in names:
        plain_name(index, name)
    return names


def plain_name(source: Path, name: str) -> str:
    """Refuse a name that points outside the directory of the file that gives it."""
    if name in ("", ".", "..") or "\0" in name or "/" in name or "\\" in name:
        raise ArtefactError(f"{source} names {name!r}: only plain file names in its directory are followed")
    return name


CRF_FILE = "crf.safetensors"
CRF_PREFIX = "objectives.tagging.crf."
"""Beginning of its parameter names in our model; the file omits it."""


def write_crf(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the CRF, always in float32: it is small, and paths sum it over hundreds of words. No tensors, no file."""
    if tensors:
        write_tensors(directory / CRF_FILE, {name.removeprefix(CRF_PREFIX): t.float() for name, t in tensors.items()})


def read_crf(directory: Path, wanted: Mapping[str, Shape], *, allow_nan: bool = False) -> dict[str, Tensor]:
    """The parameters that the model needs from the file, by our names; a model that needs none needs no file."""
    if not wanted:
        return {}
    path = directory / CRF_FILE
    if not is_there(path):
        raise ArtefactError(
            f"{path} is missing, but config.json states that this tagger has a CRF; fetch it too, or set crf to false "
            "there, in larvatus_head, to tag without"
        )
    shapes = {name.removeprefix(CRF_PREFIX): shape for name, shape in wanted.items()}
    check_fit(path, stored={name: entry.shape for name, entry in read_header(path).items()}, wanted=shapes)
    tensors = read_tensors(path, allow_nan=allow_nan)
    return {f"{CRF_PREFIX}{name}": tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}
