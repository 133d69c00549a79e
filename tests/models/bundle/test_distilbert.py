"""DistilBERT directories, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from larvatus import load
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabulary import WordPieceConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.models.bundle.theirs import LIMIT, PROSE, equal, equal_tensors, scramble, their_directory, transformers

SMALL = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 20, "max_position_embeddings": LIMIT}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([PROSE], WordPieceConfig(size=90), allow_smaller=True)


def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "DistilBertForMaskedLM", **SMALL)
    bundle = load_bundle(directory)
    assert (bundle.model.segments, bundle.model.feedforward, bundle.unused) == (0, 20, ())
    assert bundle.objectives == (MaskedLMConfig(),)
    equal(bundle.network, theirs, tokenizer)


@pytest.mark.parametrize("fields", [{"activation": "relu"}, {"sinusoidal_pos_embds": True}, {"activation": "gelu_new"}])
def test_another_activation_and_sines_for_positions_change_no_number(
    tmp_path: Path, tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "DistilBertForMaskedLM", **SMALL, **fields)
    equal(load_bundle(directory).network, theirs, tokenizer)


def test_an_encoder_alone_loads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "DistilBertModel", **SMALL)
    bundle = load_bundle(directory)
    assert (bundle.objectives, bundle.unused) == ((), ())
    equal(bundle.network, theirs, tokenizer)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, tokenizer: Tokenizer, activation: Any
) -> None:
    config = TransformerConfig(
        layers=2, hidden=16, heads=2, segments=0, max_positions=LIMIT, feedforward=24, activation=activation
    )
    network = scramble(Network.build(config, (MaskedLMConfig(),), tokenizer.size, 0))
    save_bundle(
        tmp_path / "ours",
        network=network,
        objective_configs=(MaskedLMConfig(),),
        tokenizer=tokenizer,
        recipe=None,
        lineage={},
        card="# tiny\n",
    )
    theirs, info = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    equal(network, theirs, tokenizer)
    back = load_bundle(tmp_path / "ours")
    assert back.model == config
    equal_tensors(network, back.network)


def test_their_tokenizer_and_model_go_together(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "DistilBertForMaskedLM", **SMALL)
    text = "Please turn your [MASK] in."
    asked = transformers.AutoTokenizer.from_pretrained(directory)(text, return_tensors="pt")
    with torch.no_grad():
        log_V = theirs(**asked).logits[asked["input_ids"] == tokenizer.mask_id][0].log_softmax(-1)
    ordinary = [id for id in log_V.argsort(descending=True).tolist() if id not in tokenizer.special_ids]
    assert [fill.id for fill in load(directory, device="cpu").fill(text, top=3, words_only=False)] == ordinary[:3]


def test_a_file_with_a_buffer_and_a_copy_of_the_tied_matrix_loads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "DistilBertForMaskedLM", **SMALL)
    path = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    tensors["distilbert.embeddings.position_ids"] = torch.arange(LIMIT)[None]
    tensors["vocab_projector.weight"] = tensors["distilbert.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    equal(load_bundle(directory).network, theirs, tokenizer)
    tensors["vocab_projector.weight"] += 1
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ArtefactError, match=r"vocab_projector\.weight differs from"):
        load_bundle(directory)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"activation": "silu"}, "activation"),
        ({"n_heads": 3}, "is not divisible by model.heads"),
        ({"dim": 10**12}, "= 1000000000000 must lie between 1"),
        ({"hidden_dim": 24}, "misshapen"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"architectures": ["DistilBertForMaskedImages"]}, "its head cannot be read"),
    ],
)
def test_a_config_that_we_cannot_follow_is_refused_by_field(
    tmp_path: Path, tokenizer: Tokenizer, fields: dict[str, Any], word: str
) -> None:
    directory, _ = their_directory(tmp_path / "theirs", tokenizer, "DistilBertForMaskedLM", **SMALL)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(ArtefactError, match=word):
        load_bundle(directory)
