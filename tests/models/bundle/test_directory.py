"""A model directory is saved whole, loaded whole, and vouched for by its manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import LAYOUTS
from larvatus.models.bundle.manifest import read_manifest
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig, SpanBoundaryConfig

Make = Callable[..., Any]
HEADS = (MaskedLMConfig(), NextSentenceConfig())
RAW = (MaskedLMConfig(), NextSentenceConfig(pooler=False))
WAYS: list[tuple[str, dict[str, Any], Any]] = [
    ("bert", {}, HEADS),
    ("bert", {"segments": 3, "dropout": 0.0, "norm_epsilon": 1e-6, "feedforward": 24}, HEADS),
    ("bert", {}, (MaskedLMConfig(),)),
    ("bert", {}, (NextSentenceConfig(),)),
    ("larvatus", {"norm": "pre"}, HEADS),
    ("distilbert", {"segments": 0}, (MaskedLMConfig(),)),
    ("larvatus", {"relative_buckets": 8, "relative_distance": 20}, HEADS),
    ("larvatus", {}, RAW),
    ("larvatus", {"segments": 0}, (MaskedLMConfig(), SpanBoundaryConfig(place_size=5, places=7))),
]


@pytest.mark.parametrize(("kind", "options", "objectives"), WAYS)
def test_a_model_comes_back_as_it_was(
    tmp_path: Path,
    tiny_model: Make,
    save_tiny: Make,
    tiny_tokenizer: Tokenizer,
    kind: str,
    options: Any,
    objectives: Any,
) -> None:
    before = tiny_model(objectives=objectives, **options)
    directory = save_tiny(tmp_path / "m", before, objectives)
    assert json.loads((directory / "config.json").read_text())["model_type"] == kind
    bundle = load_bundle(directory)
    after = bundle.network
    assert not after.training
    assert after.state_dict().keys() == before.state_dict().keys()
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())
    assert all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in after.parameters())
    assert bundle.model == before.encoder.config
    assert bundle.objectives == objectives
    assert (bundle.recipe, bundle.lineage, bundle.unused) == ({"name": "bert"}, {"seed": 0}, ())
    assert bundle.tokenizer.tokens == tiny_tokenizer.tokens


def test_only_our_own_layout_takes_what_bert_cannot_say(tiny_model: Make) -> None:
    """Each refusal names the setting; the last layout refuses nothing."""
    from larvatus.models.bundle.huggingface import Architecture

    def unsupported_reason(objectives: Any = (MaskedLMConfig(),), **options: Any) -> str | None:
        model = tiny_model(objectives=objectives, **options).encoder.config
        return LAYOUTS[0].unsupported(Architecture(model=model, objectives=objectives, vocabulary=9))

    assert unsupported_reason() is None
    assert "norm = 'pre'" in str(unsupported_reason(norm="pre"))
    assert "segments" in str(unsupported_reason(segments=0))
    assert "pooler" in str(unsupported_reason(RAW))
    assert LAYOUTS[-1].model_type == "larvatus"


def test_the_weights_do_not_hang_on_the_file(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    """The library maps files into memory; a model must not change with the file it came from."""
    directory = save_tiny(tmp_path / "m", tiny_model())
    after = load_bundle(directory).network
    before = {name: tensor.clone() for name, tensor in after.state_dict().items()}
    path = directory / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(-1000, 2)
        file.write(b"\xff" * 1000)
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.items())


def test_a_run_directory_keeps_what_else_it_holds(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    (tmp_path / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    for seed in (1, 2):
        save_tiny(tmp_path, tiny_model(seed=seed))
    assert (tmp_path / "checkpoints" / "step-1").is_dir()
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"
    words = load_bundle(tmp_path).network.encoder.embeddings.words.weight
    assert torch.equal(words, tiny_model(seed=2).encoder.embeddings.words.weight)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_files_of_the_model_before_do_not_stay_behind(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    save_tiny(tmp_path, tiny_model())
    manifest = json.loads((tmp_path / "larvatus.json").read_text())
    (tmp_path / "merges.txt").write_text("a b")
    manifest["files"]["merges.txt"] = {"sha256": "", "bytes": 3}
    (tmp_path / "larvatus.json").write_text(json.dumps(manifest))
    save_tiny(tmp_path, tiny_model())
    assert not (tmp_path / "merges.txt").exists()
    load_bundle(tmp_path)


def test_every_file_written_is_in_the_manifest(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    save_tiny(tmp_path, tiny_model())
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert {path.name for path in tmp_path.iterdir()} == {*manifest.files, "larvatus.json"}


def test_a_file_of_the_tokenizer_slipped_in_beside_is_refused(
    tmp_path: Path, tiny_model: Make, save_tiny: Make
) -> None:
    save_tiny(tmp_path, tiny_model())
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "river"}')
    with pytest.raises(ArtefactError, match=r"has no checksum for special_tokens_map\.json"):
        load_bundle(tmp_path)


def test_a_model_that_is_not_ours_is_not_overwritten(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ArtefactError, match="did not write"):
        save_tiny(tmp_path, tiny_model())
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_an_unknown_setting_of_our_own_layout_is_refused(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    directory = save_tiny(tmp_path / "m", tiny_model(norm="pre"))
    (directory / "larvatus.json").unlink()
    config = json.loads((directory / "config.json").read_text())
    for change in (
        {"lenght": 3},
        {"model": {**config["model"], "layer": 3}},
        {"model": {**config["model"], "hidden": 10**15}},
    ):
        files.write_json(directory / "config.json", {**config, **change})
        with pytest.raises(ArtefactError, match=r"config\.json: (Object contains unknown field|model.hidden = 1000)"):
            load_bundle(directory)


@pytest.mark.parametrize("name", ["bert-base-uncased", "nowhere/at/all", ""])
def test_a_name_is_not_fetched(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtefactError, match=r"downloads nothing by name|config\.json is missing"):
        load_bundle(name)


def test_a_directory_without_weights_or_tokenizer_says_what_is_missing(
    tmp_path: Path, tiny_model: Make, save_tiny: Make
) -> None:
    with pytest.raises(ArtefactError, match=r"config\.json is missing"):
        load_bundle(tmp_path)
    directory = save_tiny(tmp_path / "m", tiny_model())
    (directory / "larvatus.json").unlink()
    (directory / "tokenizer.json").rename(directory / "x")
    with pytest.raises(ArtefactError, match=r"tokenizer\.json"):
        load_bundle(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"model\.safetensors is missing"):
        load_bundle(directory)
    with pytest.raises(ArtefactError, match="is a file"):
        load_bundle(directory / "config.json")


def test_a_reader_that_is_overtaken_by_a_save_reads_the_new_model(
    tmp_path: Path, tiny_model: Make, save_tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny(tmp_path, tiny_model(seed=1))
    real, overtaken = manifests.verify, []

    def beside_another(*arguments: Any, **options: Any) -> None:
        if not overtaken:
            overtaken.append(arguments)
            save_tiny(tmp_path, tiny_model(seed=2))
        real(*arguments, **options)  # of the manifest before, and the files of now

    monkeypatch.setattr(manifests, "verify", beside_another)
    words = load_bundle(tmp_path).network.encoder.embeddings.words.weight
    assert overtaken
    assert torch.equal(words, tiny_model(seed=2).encoder.embeddings.words.weight)
