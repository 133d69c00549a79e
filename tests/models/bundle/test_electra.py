"""ELECTRA directories, both ways and both heads; a run keeps its generator in a folder that belongs to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle import atomic_save as replaced
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig, ReplacedTokensConfig
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import LIMIT, equal, equal_tensors, scramble, their_directory, theirs_from, transformers
from tests.tiny import save_model

OBJECTIVES = (MaskedLMConfig(), ReplacedTokensConfig(generator=0.5))
ALONE = ReplacedTokensConfig(generator=0.0)
NAMES = {"ElectraForPreTraining": (ALONE,), "ElectraForMaskedLM": (MaskedLMConfig(),), "ElectraModel": ()}
SMALL = {**FAMILIES["electra"][2], "embedding_size": 12}


def saved_by_them(path: Path, tokenizer: Tokenizer, name: str, **fields: Any) -> tuple[Path, Any]:
    return their_directory(path, tokenizer, name, **SMALL | fields)


def our_model(tokenizer: Tokenizer, objectives: Any = OBJECTIVES, **model: Any) -> Network:
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "embedding": 12, "max_positions": LIMIT, **model}
    return scramble(Network.build(TransformerConfig(**sizes), objectives, tokenizer.size, 0))


def save_ours(path: Path, made: Network, tokenizer: Tokenizer, objectives: Any = OBJECTIVES) -> Path:
    return save_model(path, made, tokenizer, objectives)


@pytest.mark.parametrize(
    "fields", [{}, {"embedding_size": 16, "intermediate_size": 64}], ids=["projected", "as large as hidden"]
)
@pytest.mark.parametrize("name", NAMES)
def test_what_transformers_saves_we_load_with_equal_logits(
    tmp_path: Path, tiny_tokenizer: Tokenizer, name: str, fields: dict[str, int]
) -> None:
    directory, theirs = saved_by_them(tmp_path / "theirs", tiny_tokenizer, name, **fields)
    bundle = load_bundle(directory)
    assert bundle.objectives == NAMES[name]
    assert bundle.model.embedding == (0 if fields else 12)
    assert bundle.network.generator is None
    assert bundle.unused == ()
    equal(bundle.network, theirs, tiny_tokenizer)


def test_the_activation_is_the_discriminators_but_never_the_generators(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    directory, theirs = saved_by_them(tmp_path / "d", tiny_tokenizer, "ElectraForPreTraining", hidden_act="relu")
    equal(load_bundle(directory).network, theirs, tiny_tokenizer)
    directory, _ = saved_by_them(tmp_path / "g", tiny_tokenizer, "ElectraForMaskedLM", hidden_act="relu")
    with pytest.raises(ArtefactError, match="always has a GELU"):
        load_bundle(directory)


@pytest.mark.parametrize("model", [{}, {"hidden": 12}, {"embedding": 0}, {"feedforward": 20}])
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, tiny_tokenizer: Tokenizer, model: dict[str, int]
) -> None:
    made = our_model(tiny_tokenizer, **model)
    assert made.generator is not None
    directory = save_ours(tmp_path / "ours", made, tiny_tokenizer)
    assert json.loads((directory / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    for part, auto, folder in (
        (made, transformers.AutoModelForPreTraining, directory),
        (made.generator, transformers.AutoModelForMaskedLM, directory / "generator"),
    ):
        theirs = theirs_from(auto, folder)
        equal(part, theirs, tiny_tokenizer)
    assert len(transformers.AutoTokenizer.from_pretrained(directory / "generator")) == tiny_tokenizer.size


def test_a_run_loads_whole_and_its_generator_alone(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    made = our_model(tiny_tokenizer)
    directory = save_ours(tmp_path / "run", made, tiny_tokenizer)
    again = load_bundle(directory)
    assert again.objectives == (ALONE,)
    equal_tensors(made, again.network)
    names = {name for name, _ in again.network.named_parameters()}
    assert names == {name for name, _ in made.named_parameters()}  # the embeddings are held once
    alone = load_bundle(directory / "generator")
    assert alone.objectives == (MaskedLMConfig(),)
    assert set(load_file(directory / "model.safetensors")).isdisjoint({"generator_lm_head.bias"})

    text = "please turn your [MASK] in ."
    best = lv.load(directory, device="cpu").fill(text, top=3)
    assert best == lv.load(directory / "generator", device="cpu").fill(text, top=3)
    asked = torch.tensor([encode_batch(tiny_tokenizer, [text.replace("[MASK]", "run")]).ids.tolist()])
    asked[0, 4] = tiny_tokenizer.mask_id
    theirs = transformers.ElectraForMaskedLM.from_pretrained(directory / "generator").eval()
    with torch.no_grad():
        p_V = theirs(input_ids=asked).logits[0, 4].softmax(-1)
    assert best[0].probability == pytest.approx(float(p_V[best[0].id]), rel=1e-3)


def test_a_discriminator_alone_cannot_fill_and_says_so(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    directory, _ = saved_by_them(tmp_path / "theirs", tiny_tokenizer, "ElectraForPreTraining")
    with pytest.raises(ArtefactError, match="no masked-lm head to fill blanks with"):
        lv.load(directory, device="cpu").fill("the [MASK]")


def test_what_we_load_and_save_again_is_the_same(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    directory = save_ours(tmp_path / "run", our_model(tiny_tokenizer), tiny_tokenizer)
    bundle = load_bundle(directory)
    again = save_ours(tmp_path / "again", bundle.network, tiny_tokenizer, bundle.objectives)
    for name in ("model.safetensors", "config.json", "generator/model.safetensors", "generator/config.json"):
        assert files.sha256(directory / name) == files.sha256(again / name)


def test_a_generator_that_was_changed_swapped_or_lost_is_refused_by_name(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    directory = save_ours(tmp_path / "run", our_model(tiny_tokenizer), tiny_tokenizer)
    weights = directory / "generator" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ArtefactError, match=r"generator/model\.safetensors does not match its checksum"):
        load_bundle(directory)
    weights.write_bytes(whole)
    load_bundle(directory)
    other = save_ours(tmp_path / "other", our_model(tiny_tokenizer, layers=3), tiny_tokenizer)
    (directory / "generator").rename(tmp_path / "kept")
    with pytest.raises(ArtefactError, match=r"generator/larvatus\.json is missing"):
        load_bundle(directory)
    (other / "generator").rename(directory / "generator")  # sound in itself, but of another model
    with pytest.raises(ArtefactError, match=r"generator/larvatus\.json (has|does not match)"):
        load_bundle(directory)
    (directory / "generator").rename(tmp_path / "others")
    (directory / "generator").symlink_to(tmp_path / "kept")
    with pytest.raises(ArtefactError, match="symbolic link"):
        load_bundle(directory)


def test_a_save_over_an_older_one_is_read_whole_when_cut_and_leaves_no_old_generator(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = save_ours(tmp_path / "run", our_model(tiny_tokenizer), tiny_tokenizer)
    (directory / "metrics.jsonl").write_text("{}\n")
    newer = our_model(tiny_tokenizer, layers=3)
    real, moved = replaced._put, []

    def put(source: Path, target: Path) -> None:
        moved.append(target)
        if len(moved) > 3:  # killed amid the files of the generator
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(replaced, "_put", put)
    with pytest.raises(KeyboardInterrupt):
        save_ours(directory, newer, tiny_tokenizer)
    monkeypatch.undo()
    assert load_bundle(directory).model.layers == 3
    assert (directory / files.PENDING).is_dir()  # reading finishes nothing
    plain = our_model(tiny_tokenizer, (MaskedLMConfig(),))
    save_ours(directory, plain, tiny_tokenizer, (MaskedLMConfig(),))
    assert not (directory / files.PENDING).exists()
    assert not (directory / "generator").exists()
    assert (directory / "metrics.jsonl").exists()
    assert load_bundle(directory).network.generator is None


@pytest.mark.parametrize(
    ("model", "heads", "layout"),
    [
        ({}, (ALONE,), "electra"),
        ({"embedding": 12}, (ALONE,), "electra"),
        ({"embedding": 12}, (MaskedLMConfig(),), "electra"),
        ({"embedding": 12}, (), "electra"),
        ({}, (MaskedLMConfig(),), "bert"),
        ({"embedding": 12, "activation": "relu"}, (MaskedLMConfig(),), "larvatus"),
        ({"activation": "relu"}, (ALONE,), "electra"),
        ({"norm": "pre"}, (ALONE,), "larvatus"),
        ({"segments": 0}, (ALONE,), "larvatus"),
        ({}, (ALONE, NextSentenceConfig()), "larvatus"),
    ],
)
def test_a_model_is_written_in_the_layout_that_computes_the_same(
    model: dict[str, Any], heads: tuple[Any, ...], layout: str
) -> None:
    architecture = Architecture(model=TransformerConfig(**model), objectives=heads, vocabulary=300)
    assert layout_for(architecture, pad=0).model_type == layout


def test_a_model_of_no_published_form_keeps_its_generator_too(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    made = our_model(tiny_tokenizer, norm="pre")
    directory = save_ours(tmp_path / "run", made, tiny_tokenizer)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "larvatus"
    equal_tensors(made, load_bundle(directory).network)
