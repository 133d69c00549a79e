"""Rows 7, 44, 72 and 77: weights whose header is of any length, lies, or is not what it says."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.weights import read_header, read_tensors, write_tensors
from tests.faults.forked import Forked

Make = Callable[..., Any]
LIKE_PICKLES = [640, 896, 1152, 1408, 19280]
"""Lengths of headers whose bytes are \\x80\\x02 to \\x80\\x05, as pickles begin, or PK, as zip archives do."""


# ── 72. a header of any length


def test_72_a_header_of_any_length_is_read(tmp_path: Path) -> None:
    """The format pads with spaces. What the library reads we read, whatever the length's bytes look like."""
    path = tmp_path / "x.safetensors"
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    least = len(json.dumps({"a": entry}))
    with path.open("wb", buffering=0) as file:  # one file that grows: to make thousands takes seconds
        for length in sorted({*range(8, 20_000, 8), *range(least, 2_500, 31), *LIKE_PICKLES}):
            held = {"a": entry} if length >= least else {}
            header = json.dumps(held).ljust(length).encode()
            os.pwrite(file.fileno(), length.to_bytes(8, "little") + header + b"\0" * 4 * len(held), 0)
            assert list(read_header(path)) == list(held), length


@pytest.mark.parametrize("length", LIKE_PICKLES)
def test_72_our_own_files_whose_header_begins_like_a_pickle_are_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "trained.safetensors"
    tensors = {f"layer.{n}": torch.full((2, 3), float(n)) for n in range(4)}
    write_tensors(path, tensors, {"padding": ""})
    plain = int.from_bytes(path.read_bytes()[:8], "little")
    write_tensors(path, tensors, {"padding": "x" * (length - plain)})
    assert int.from_bytes(path.read_bytes()[:8], "little") == length
    assert {name: tensor.tolist() for name, tensor in read_tensors(path).items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


def test_72_such_a_model_loads(unvouched: Path, forked: Forked) -> None:
    path = unvouched / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    plain = len(safetensors.torch.save(tensors, {"format": "pt", "p": ""})) - sum(t.nbytes for t in tensors.values())
    safetensors.torch.save_file(tensors, path, {"format": "pt", "p": "x" * (19280 - (plain - 8))})
    assert path.read_bytes()[:2] == b"PK"
    assert forked("fill", "The [MASK].", "--model", "m").code == 0


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


def archives(canary: Path) -> dict[str, bytes]:
    made = {f"protocol {n}": pickle.dumps(Bomb(canary), n) for n in range(pickle.HIGHEST_PROTOCOL + 1)}
    made |= {f"long {n}": pickle.dumps([Bomb(canary), b"x" * 70_000], n) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with io.BytesIO() as file:
            with zipfile.ZipFile(file, "w", method) as archive:
                archive.writestr("data.pkl", made["protocol 2"])
            made[f"zip {method}"] = file.getvalue()
    with io.BytesIO() as file:
        torch.save({"a": torch.zeros(3)}, file)
        made["torch"] = file.getvalue()
    made["brace"] = b"\x80\x04\0\0\0\0\0\0{" + made["protocol 4"]  # says that a header follows, which is none
    made["both"] = (8).to_bytes(8, "little") + b"{}      " + made["zip 0"]  # a sound header, and an archive behind it
    return made


def test_72_a_pickle_or_a_zip_archive_of_any_name_is_refused_unread(
    unvouched: Path, forked: Forked, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    (unvouched / "model.safetensors").unlink()
    for kind, raw in archives(canary).items():
        (unvouched / "model.safetensors").write_bytes(raw)
        said = forked("load", unvouched).refused(5, "model.safetensors")
        if not kind.endswith((" 0", " 1", "brace", "both")) or kind.startswith("zip"):
            assert "is a zip archive or a pickle" in said, kind
    for name in ("optimizer.bin", "x.PT", "weights.pth", "a.ckpt", "b.pkl", "c.pickle"):
        (unvouched / name).write_bytes(archives(canary)["protocol 4"])
        forked("load", unvouched / name).refused(5, "is pickled")
    assert not canary.exists()


# ── 77. weights are floats, and finite


def rewritten(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file(tensors, path)


@pytest.mark.parametrize(("before", "after"), [("F32", "I32"), ("F16", "I16"), ("F64", "I64")])
def test_77_weights_relabelled_as_integers_are_refused_by_name(unvouched: Path, before: str, after: str) -> None:
    path = unvouched / "model.safetensors"
    kinds = {"F32": torch.float32, "F16": torch.float16, "F64": torch.float64}
    rewritten(path, lambda tensors: tensors.update({name: t.to(kinds[before]) for name, t in tensors.items()}))
    load_bundle(unvouched)
    raw = path.read_bytes()
    name = b'"bert.pooler.dense.bias":{"dtype":"'
    assert raw.count(name + before.encode()) == 1
    path.write_bytes(raw.replace(name + before.encode(), name + after.encode()))
    with pytest.raises(
        ArtefactError, match=rf"tensor 'bert.pooler.dense.bias' is of type {after}, but weights must be"
    ):
        load_bundle(unvouched)
    with pytest.raises(ArtefactError, match=f"is of type {after}"):  # a checkpoint is read so
        read_tensors(path)


def test_77_buffers_of_integers_that_no_weight_is_made_of_still_load(unvouched: Path) -> None:
    path = unvouched / "model.safetensors"
    rewritten(path, lambda tensors: tensors.update({"bert.embeddings.position_ids": torch.arange(32)[None]}))
    load_bundle(unvouched)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (torch.float32, torch.inf),
        (torch.float16, torch.inf),
        (torch.bfloat16, -torch.inf),
        (torch.float16, torch.nan),
        (torch.float64, torch.inf),
        (torch.float64, 1e300),  # finite, but not as float32
    ],
)
def test_77_a_weight_that_is_not_finite_is_refused_by_name(unvouched: Path, kind: torch.dtype, number: float) -> None:
    path = unvouched / "model.safetensors"

    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: t.to(kind) for name, t in tensors.items()})
        tensors["bert.pooler.dense.bias"][3] = number

    rewritten(path, spoil)
    with pytest.raises(ArtefactError, match=r"'bert\.pooler\.dense\.bias' holds NaN or infinity"):
        load_bundle(unvouched)


# ── 7 and 44. headers that lie


def tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TB = 2**40
LIES: dict[str, tuple[Any, int | None, int]] = {
    "overlap": ({"a": tensor(0, TB, [2**38]), "b": tensor(TB - 4, TB + TB, [2**38 + 1])}, None, 2 * TB),
    "hole": ({"a": tensor(0, TB, [2**38]), "b": tensor(TB + 4, 2 * TB, [2**38 - 1])}, None, 2 * TB),
    "two at one place": ({"a": tensor(0, 8, [2]), "b": tensor(0, 8, [2])}, None, 8),
    "header over 100 MB": (b"{}", 10**8 + 1, 2 * 10**8),
    "header of 1 TB": (b"{}", TB, 2 * TB),
    "header of all there is": (b"{}", 2**64 - 1, 0),
    "header of zeros": (b"", 10**8, 10**8 + 8),
    "shape overflows": ({"a": tensor(0, 16, [2**62, 4])}, None, 0),
    "shape overflows to 0": ({"a": tensor(0, 0, [2**32, 2**32])}, None, 0),
    "no elements, 1 TB": ({"a": tensor(0, 0, [2**40, 2**40, 0, 2**60])}, None, TB),
    "beyond the file": ({"a": tensor(0, 2**62, [2**60])}, None, 0),
    "backwards": ({"a": tensor(8, 0, [2])}, None, 8),
    "negative": ({"a": tensor(-8, 0, [2])}, None, 8),
    "1,000 dimensions": ({"a": tensor(0, 4, [1] * 1000)}, None, 4),
    "no such type": ({"a": tensor(0, 4, [1], "F4096")}, None, 4),
    "a million names": ({f"n{i}": tensor(0, 0, [0]) for i in range(100_000)}, None, 0),
    "nested": (b'{"a":' * 100_000, None, 0),
    "a list": ([], None, 0),
    "not JSON": (b"{" + b"\xff" * 64, None, 0),
    "twice": (b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"data_offsets":[0,8]}}', None, 0),
}


def test_7_and_44_a_lying_header_is_refused_in_bounded_memory(unvouched: Path, forked: Forked) -> None:
    """As `larvatus.load` and a command meet it, each in a process of its own."""
    path = unvouched / "model.safetensors"
    for kind, (header, length, size) in LIES.items():
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        with path.open("wb") as file:
            file.write((len(raw) if length is None else length).to_bytes(8, "little") + raw)
            file.truncate(max(8 + len(raw), size))  # sparse: takes no room on the disk
        done = forked("load", unvouched)
        done.refused(5, "model.safetensors")
        assert done.megabytes < 250, kind  # 100 MB is the largest header that is read at all
        if kind in ("header of 1 TB", "overlap"):
            forked("fill", "The [MASK].", "--model", "m").refused(5, "model.safetensors", "not a sound safetensors")
            forked("convert", "m", "out").refused(5, "model.safetensors")


def test_44_an_archive_that_unpacks_to_gigabytes_costs_no_memory(model: Path, forked: Forked, tmp_path: Path) -> None:
    """2 GB of one line in 2 MB, as text, as labelled data and as a settings file."""
    packed = gzip.compress(b"\0" * 2**20, 9) * 2000  # members one after the other
    for name in ("bomb.txt.gz", "bomb.jsonl.gz"):
        (tmp_path / name).write_bytes(packed)
    for command in (
        ("corpus", "build", "bomb.txt.gz", "--tokenizer", "m", "--out", "c"),
        ("finetune", "classify", "--model", "m", "--train", "bomb.jsonl.gz", "--out", "tuned"),
    ):
        done = forked(*command)
        done.refused(4, "bomb.")
        assert done.megabytes < 800  # a line of 256 MB is the longest that is taken
    (model / "larvatus.json").unlink()
    (model / "config.json").write_bytes(packed)  # nothing here is ever unpacked
    forked("load", "m").refused(5, "config.json")
