"""DistilBERT directories, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from larvatus import load
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import (
    LIMIT,
    edit_weights,
    equal,
    read_by_both,
    scramble,
    their_directory,
    transformers,
)

SMALL = FAMILIES["distilbert"][2]


@pytest.fixture
def tokenizer(vocabularies: dict[str, Tokenizer]) -> Tokenizer:
    return vocabularies["wordpiece"]


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
    read_by_both(tmp_path / "ours", network, tokenizer, transformers.DistilBertForMaskedLM)


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
    tied, copied = "distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"
    buffer = {"distilbert.embeddings.position_ids": torch.arange(LIMIT)[None]}
    edit_weights(directory, lambda tensors: tensors | buffer | {copied: tensors[tied].clone()})
    equal(load_bundle(directory).network, theirs, tokenizer)
    edit_weights(directory, lambda tensors: tensors | {copied: tensors[copied] + 1})
    with pytest.raises(ArtefactError, match=r"vocab_projector\.weight differs from"):
        load_bundle(directory)
