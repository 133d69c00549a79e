"""Safetensors files are read only when their header is sound, and written as the library writes them."""

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.weights import (
    check_fit,
    find_weights,
    iter_tensors,
    read_header,
    read_tensors,
    write_tensors,
)

F32 = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def forge(path: Path, header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> Path:
    """A file whose header says what we want it to say."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def test_what_is_written_is_read_back_and_by_the_library_too(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6.0).view(2, 3),
        "b": torch.tensor([1, 2]),
        "none": torch.empty(0, 4),
        "one": torch.tensor(2.5),
    }
    write_tensors(tmp_path / "x.safetensors", tensors)
    path = tmp_path / "x.safetensors"
    for read in (read_tensors(path, integers=True), safetensors.torch.load_file(path)):
        assert read.keys() == tensors.keys()
        assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    tensors = {"x": torch.randn(3, 5).half(), "y": torch.ones(2, dtype=torch.bfloat16), "z": torch.tensor([True])}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors", metadata={"a": "b"})
    read = iter_tensors(tmp_path / "x.safetensors", integers=True)
    assert all(torch.equal(value, tensors[name]) for name, value in read)


def test_views_of_one_storage_can_be_written(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(6, 2)
    write_tensors(tmp_path / "x.safetensors", dict(zip("qkv", whole.chunk(3), strict=True)))
    assert torch.equal(torch.cat([read_tensors(tmp_path / "x.safetensors")[n] for n in "qkv"]), whole)


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(1)})
    assert stat.S_IMODE((tmp_path / "x.safetensors").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "usual").stat().st_mode
    )


BAD = {
    "overlap": ({"a": F32, "b": {**F32, "data_offsets": [8, 24]}}, 24, "overlaps"),
    "the same bytes twice": ({"a": F32, "b": F32}, 16, "overlaps"),
    "hole": ({"a": F32, "b": {**F32, "data_offsets": [20, 36]}}, 36, "hole"),
    "hole at the start": ({"a": {**F32, "data_offsets": [4, 20]}}, 20, "hole"),
    "left over": ({"a": F32}, 17, "17 follow"),
    "cut": ({"a": F32}, 15, "15 follow"),
    "shape overflow": ({"a": {**F32, "shape": [2**62, 4]}}, 16, "needs"),
    "shape overflow to the right size": ({"a": {**F32, "shape": [2**32, 2**32 + 1]}}, 16, "needs"),
    "backwards": ({"a": {**F32, "data_offsets": [16, 0]}}, 16, "not -16"),
    "negative size": ({"a": {**F32, "shape": [-2, -2]}}, 16, "header"),
    "fraction": ({"a": {**F32, "shape": [2.0, 2.5]}}, 16, "header"),
    "truth value": ({"a": {**F32, "shape": [True, 4]}}, 16, "header"),
    "unknown type": ({"a": {**F32, "dtype": "F33"}}, 16, "F33"),
    "unknown field": ({"a": {**F32, "code": "import os"}}, 16, "code"),
    "missing field": ({"a": {"dtype": "F32", "shape": [4]}}, 16, "data_offsets"),
    "metadata of the wrong kind": ({"__metadata__": {"a": 1}, "a": F32}, 16, "header"),
    "not an object": (b"[]", 0, "header"),
    "not JSON": (b"{,}", 0, "header"),
    "not UTF-8": (b'{"\xff\xfe": {}}', 0, "header"),
    "nested without end": (b'{"a":' + b"[" * 100_000, 0, "header"),
    "a million dimensions": ({"a": {**F32, "shape": [2**60] * 100_000}}, 16, "dimensions"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_header_that_lies_is_refused_by_name(tmp_path: Path, name: str) -> None:
    header, size, word = BAD[name]
    path = forge(tmp_path / "x.safetensors", header, b"\0" * size)
    with pytest.raises(ArtefactError, match=word) as caught:
        read_tensors(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=3))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_read_but_never_a_traceback(
    tmp_path: Path, cut: int, flips: list[tuple[int, int]]
) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"alpha": torch.ones(4, 4), "beta": torch.zeros(3)})
    raw = bytearray(path.read_bytes())
    for place, mask in flips:
        raw[place % len(raw)] ^= mask
    path.write_bytes(raw[:cut] if cut < 300 else raw)
    try:
        tensors = read_tensors(path)
    except ArtefactError:
        return
    assert sum(t.numel() * t.element_size() for t in tensors.values()) == 4 * (16 + 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_unless_allowed(tmp_path: Path, bad: float) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"fine": torch.zeros(2), "sick": torch.tensor([1.0, bad])})
    with pytest.raises(ArtefactError, match="'sick' holds NaN or infinity"):
        read_tensors(path)
    assert read_tensors(path, allow_nan=True).keys() == {"fine", "sick"}


def test_one_error_lists_missing_extra_and_misshapen(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError) as caught:
        check_fit(tmp_path / "w", stored={"a": (2,), "x": (1,)}, wanted={"a": (3,), "b": (1,), "c": ()})
    assert "missing: b, c; extra: x; misshapen: a is [2], not [3]" in str(caught.value)


def test_a_long_list_is_shortened(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"missing: t0, .*, t7 and 92 more;"):
        check_fit(tmp_path / "w", stored={}, wanted={f"t{i}": () for i in range(100)})


def test_shards_are_found_through_their_index_and_may_not_point_elsewhere(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps(
            {"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}}
        )
    )
    assert find_weights(tmp_path) == [tmp_path / "m-1.safetensors", tmp_path / "m-2.safetensors"]
    for name in ("../m.safetensors", "/etc/passwd", "a/b.safetensors", ".."):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(ArtefactError, match="only plain file names"):
            find_weights(tmp_path)


def test_a_header_is_read_without_reading_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    raw = json.dumps({"a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}).encode()
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + 2**40)  # a sparse file: a terabyte that takes no room
    assert read_header(path)["a"].shape == (2**38,)
