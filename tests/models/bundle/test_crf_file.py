"""The CRF of a tagger stands beside its weights, and both come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads import TaggingConfig
from tests.models.bundle.families import Make, equal, headed, save, theirs_of
from tests.models.bundle.theirs import equal_tensors


def test_a_crf_stands_beside_and_comes_back(tmp_path: Path, theirs: Make) -> None:
    bundle = headed(load_bundle(theirs("bert", "Model")[0]), "tagging", crf=True)
    directory = save(tmp_path / "ours", bundle)
    manifest = json.loads((directory / "larvatus.json").read_text())
    assert "crf.safetensors" in manifest["files"]
    equal(bundle, theirs_of(directory, "tagging"))
    back = load_bundle(directory)
    assert back.objectives == bundle.objectives
    equal_tensors(back.network, bundle.network)
    (config,) = back.objectives
    assert isinstance(config, TaggingConfig)
    _, taken = attach_head(back, config, seed=1)
    assert "objectives.tagging.crf.transitions" in taken
    _, taken = attach_head(back, TaggingConfig(labels=("x", "y", "z"), crf=True), seed=1)
    assert taken == ()


def test_a_crf_is_converted_with_its_model_and_goes_with_it(tmp_path: Path, theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "Model")[0])
    bundle = headed(parent, "tagging", crf=True)
    source = save(tmp_path / "ours", bundle)
    native = convert_bundle(source, tmp_path / "native", to="larvatus")
    assert native.kept == ("tagging",)
    assert not (native.path / "crf.safetensors").exists()
    equal_tensors(load_bundle(native.path).network, bundle.network)
    again = convert_bundle(native.path, tmp_path / "bert", to="bert", dtype="bfloat16")
    assert again.architecture == "BertForTokenClassification"
    crf = "objectives.tagging.crf.transitions"
    found = load_bundle(again.path).network.state_dict()[crf]
    assert torch.equal(found, bundle.network.state_dict()[crf])
    save(source, headed(parent, "tagging"))
    assert not (source / "crf.safetensors").exists()
    load_bundle(source)


def test_a_crf_that_is_missing_or_does_not_fit_is_named(tmp_path: Path, theirs: Make) -> None:
    directory = save(tmp_path / "ours", headed(load_bundle(theirs("bert", "Model")[0]), "tagging", crf=True))
    path = directory / "crf.safetensors"
    kept = path.read_bytes()
    path.write_bytes(kept[:-4] + b"\0\0\0\0")
    with pytest.raises(ArtefactError, match=r"crf\.safetensors does not match its checksum"):
        load_bundle(directory)
    path.unlink()
    with pytest.raises(ArtefactError, match=r"crf\.safetensors is missing, but larvatus\.json lists it"):
        load_bundle(directory)
    (directory / "larvatus.json").unlink()
    with pytest.raises(ArtefactError, match=r"crf\.safetensors is missing, but config\.json states"):
        load_bundle(directory)
    save_file({"transitions": torch.zeros(3, 3), "start": torch.zeros(4)}, path)
    with pytest.raises(
        ArtefactError, match=r"crf\.safetensors does not fit .* missing: end; misshapen: start is \[4\]"
    ):
        load_bundle(directory)
    save_file({"transitions": torch.full((3, 3), torch.nan), "start": torch.zeros(3), "end": torch.zeros(3)}, path)
    with pytest.raises(ArtefactError, match=r"crf\.safetensors: tensor 'transitions' holds NaN"):
        load_bundle(directory)
    path.write_bytes(kept)
    load_bundle(directory)
