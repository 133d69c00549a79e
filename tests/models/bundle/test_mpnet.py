"""MPNet directories, both ways: the bias by relative position is theirs to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import (
    LIMIT,
    edit_config,
    edit_weights,
    equal,
    read_by_both,
    scramble,
    their_directory,
    transformers,
)

SMALL = {**FAMILIES["mpnet"][2], "layer_norm_eps": 1e-5}


@pytest.fixture
def tokenizer(vocabularies: dict[str, Tokenizer]) -> Tokenizer:
    """With the padding id 1, as MPNet's code takes for granted."""
    return vocabularies["unigram"]


def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "MPNetForMaskedLM", **SMALL)
    bundle = load_bundle(directory)
    assert (bundle.model.max_positions, bundle.model.segments, bundle.model.relative_buckets) == (LIMIT, 0, 32)
    assert (bundle.objectives, bundle.unused) == ((MaskedLMConfig(),), ())
    equal(bundle.network, theirs, tokenizer)
    with torch.no_grad():  # the bias is not there for nothing
        bundle.network.encoder.relative.weight.zero_()
    with pytest.raises(AssertionError):
        equal(bundle.network, theirs, tokenizer)


def test_an_encoder_alone_loads_and_leaves_its_pooler(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "MPNetModel", **SMALL)
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    assert bundle.unused == ("mpnet.pooler.dense.bias", "mpnet.pooler.dense.weight")
    equal(bundle.network, theirs, tokenizer)


def test_what_we_save_transformers_loads_with_equal_logits(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = TransformerConfig(layers=2, hidden=16, heads=2, segments=0, max_positions=LIMIT, relative_buckets=32)
    network = scramble(Network.build(config, (MaskedLMConfig(),), tokenizer.size, 0))
    read_by_both(tmp_path / "ours", network, tokenizer, transformers.MPNetForMaskedLM)


def test_a_sentence_transformers_package_loads_though_its_config_promises_a_head(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """As in the published all-mpnet-base-v2: the config says MPNetForMaskedLM, the file holds an encoder."""
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "MPNetModel", **SMALL)
    edit_config(directory, architectures=["MPNetForMaskedLM"])
    with pytest.raises(ArtefactError, match=r"missing: lm_head\.bias"):
        load_bundle(directory)
    (directory / "modules.json").write_text(
        json.dumps(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ]
        )
    )
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16}))
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    equal(bundle.network, theirs, tokenizer)


def test_a_file_with_a_buffer_and_copies_of_what_is_tied_loads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "MPNetForMaskedLM", **SMALL)
    edit_weights(
        directory,
        lambda tensors: {
            **tensors,
            "mpnet.embeddings.position_ids": torch.arange(LIMIT + 2)[None],
            "lm_head.decoder.weight": tensors["mpnet.embeddings.word_embeddings.weight"].clone(),
            "lm_head.decoder.bias": tensors["lm_head.bias"].clone(),
        },
    )
    equal(load_bundle(directory).network, theirs, tokenizer)
