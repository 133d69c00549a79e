"""Weights as whole numbers with a scale a row: what is read back is near what was written, and works as any model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import larvatus as lv
from larvatus.core.errors import ArtefactError
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle import weight_files as int8_file
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.manifest import read_manifest
from larvatus.models.bundle.weights import write_tensors


@pytest.fixture
def source(tmp_path, tiny_model, save_tiny) -> Path:
    return save_tiny(tmp_path / "source", tiny_model())


def test_each_number_is_within_half_a_step_of_its_row(tmp_path):
    torch.manual_seed(0)
    wide = torch.randn(8, 64) * torch.logspace(-40, 3, 8)[:, None]  # rows of very different sizes, one beneath float32
    wide[3] = 0.0
    tensors = {"wide": wide, "kernel": torch.randn(4, 8, 3), "norm": torch.randn(64), "narrow": torch.randn(4, 2)}
    write_tensors(tmp_path / int8_file.NAME, int8_file.quantise_tensors(tensors))
    back = dict(int8_file.iter_int8(tmp_path / int8_file.NAME))
    assert back.keys() == tensors.keys()
    for name in ("wide", "kernel"):
        rows, read = tensors[name].flatten(1), back[name].flatten(1)
        step = rows.abs().amax(1, keepdim=True) / 127
        assert ((rows - read).abs() <= step * 0.5001 + 1.2e-38).all()
    assert torch.equal(back["norm"], tensors["norm"])
    assert torch.equal(back["narrow"], tensors["narrow"])


def test_a_model_in_int8_reads_as_float32_and_says_what_it_lost(tmp_path, source):
    done = convert_bundle(source, tmp_path / "small", dtype="int8")
    before, after = load_bundle(source).network, load_bundle(tmp_path / "small").network
    pairs = list(zip(after.state_dict().values(), before.state_dict().values(), strict=True))
    gap, norm = sum(((a - b) ** 2).sum() for a, b in pairs), sum((b**2).sum() for _, b in pairs)
    assert done.reconstruction is not None
    assert done.reconstruction.error == pytest.approx(float((gap / norm).sqrt()), rel=1e-3)
    assert 0 < done.reconstruction.error < 0.01 <= done.reconstruction.worst_error + 0.01
    assert {p.dtype for p in after.parameters()} == {torch.float32}
    files = read_manifest(tmp_path / "small").files
    assert int8_file.NAME in files
    assert "model.safetensors" not in files
    assert files[int8_file.NAME].bytes < 0.6 * (source / "model.safetensors").stat().st_size
    convert_bundle(tmp_path / "small", tmp_path / "back", overwrite=False)  # as float32 again: no further loss
    for name, tensor in load_bundle(tmp_path / "back").network.state_dict().items():
        assert torch.equal(tensor, after.state_dict()[name])
    assert lv.load(tmp_path / "small", device="cpu").fill("the [MASK] was wide")[0].token


def test_the_command_says_it_and_transformers_finds_no_weights_to_misread(tmp_path, source, capsys):
    with pytest.raises(SystemExit) as ended:
        run(["convert", str(source), str(tmp_path / "small"), "--dtype", "int8"])
    assert ended.value.code == 0
    assert "rounded: 0." in capsys.readouterr().out
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "small", local_files_only=True)


@pytest.mark.parametrize("harm", ["no scale", "infinite", "of other rows"])
def test_scales_that_are_missing_or_too_large_are_refused(tmp_path, source, harm):
    convert_bundle(source, tmp_path / "small", dtype="int8")
    path = tmp_path / "small" / int8_file.NAME
    tensors = load_file(path)
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.int8)
    scale = tensors.pop(name + int8_file.SCALE)
    if harm == "infinite":
        tensors[name + int8_file.SCALE] = torch.full_like(scale, 3e38)
    elif harm == "of other rows":
        tensors[name + int8_file.SCALE] = scale[:-1]
    save_file(tensors, path, metadata={"format": "pt"})
    (tmp_path / "small" / "larvatus.json").unlink()
    with pytest.raises(ArtefactError, match="scale"):
        load_bundle(tmp_path / "small")
