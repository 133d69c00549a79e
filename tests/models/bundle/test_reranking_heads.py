"""Directories of rerankers, both ways: `…ForSequenceClassification` of one label in every family, and cross-encoders of
sentence-transformers in each form that its versions write; from strings on both sides."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.core.errors import ArtefactError
from larvatus.inference.model.ranking import rank_passages
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.heads.sequence_score import ACTIVATIONS, MARKER, OLD_MARKER, RerankingConfig
from larvatus.models.objectives.ranking import ListNet
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.registry import task_of
from tests.models.bundle.families import FAMILIES, kept_by_them, save
from tests.models.bundle.their_tokenizers import their_model
from tests.models.bundle.theirs import transformers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import CrossEncoder

QUERY = "What does it print?"
PASSAGES = ["It prints the list.", "a", "Set a breakpoint, please! It doesn't.", "the file " * 12]
IDENTITY = "torch.nn.modules.linear.Identity"


def our_scores(bundle: Bundle) -> np.ndarray:
    scored = rank_passages(bundle, QUERY, PASSAGES, PredictOptions(), device="cpu")
    return np.array([row.score for row in sorted(scored, key=lambda row: row.index)])


def cross_encoder(directory: Path, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CrossEncoder(str(directory), device="cpu", **settings)


def scored_by_them(directory: Path) -> np.ndarray:
    return cross_encoder(directory).predict([(QUERY, passage) for passage in PASSAGES], show_progress_bar=False)


def random_head(bundle: Bundle) -> None:
    with torch.no_grad():
        for parameter in bundle.network.objectives.parameters():
            parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_they_load_with_equal_scores(tmp_path: Path, family: str) -> None:
    parent = load_bundle(their_model(tmp_path / "parent", family, "Model"))
    config = RerankingConfig(**default_head_settings(parent, "reranking"), dropout=0.25, loss=ListNet())
    bundle, taken = attach_head(parent, config, seed=1)
    assert bool(taken) == (family in ("bert", "albert"))  # whose classifiers read the pooler
    random_head(bundle)
    directory = save(tmp_path / "ours", bundle)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "parent")
    tokenizer.save_pretrained(directory)  # their files, so that both sides read the same strings
    kind = transformers.AutoModelForSequenceClassification
    model, info = kind.from_pretrained(directory, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    assert (model.config.model_type, model.config.num_labels) == (family, 1)
    segments = family in ("bert", "albert", "electra")
    batch = tokenizer([QUERY] * 4, PASSAGES, padding=True, return_tensors="pt", return_token_type_ids=segments)
    with torch.no_grad():
        theirs = torch.sigmoid(model.eval()(**batch).logits[:, 0]).numpy()
    ours = our_scores(bundle)
    assert ours.std() > 0.01  # not equal for being nothing
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    if segments and "token_type_ids" not in tokenizer(QUERY, "a"):  # their ALBERT has segments in its template only
        settings = directory / "tokenizer_config.json"
        names = ["input_ids", "token_type_ids", "attention_mask"]  # as our own vocabularies are saved
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "model_input_names": names}))
    np.testing.assert_allclose(ours, scored_by_them(directory), atol=1e-5)
    assert task_of(kept_by_them(bundle, model, tmp_path / "again")).name == "rerank"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("version", ["3", "4", "6"])
def test_what_they_save_we_load_with_equal_scores(tmp_path: Path, version: str, activation: str) -> None:
    plain = their_model(tmp_path / "plain", "bert", "ForSequenceClassification", num_labels=1)
    assert isinstance(load_bundle(plain).objectives[0], ClassificationConfig)  # without a marker, a number of one text
    directory = tmp_path / "theirs"
    layer = torch.nn.Identity() if activation == IDENTITY else torch.nn.Sigmoid()
    cross_encoder(plain, activation_fn=layer).save_pretrained(str(directory))
    if version != "6":  # as versions 3 and 4 wrote them
        for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
            (directory / name).unlink()
        path = directory / "config.json"
        marker = {OLD_MARKER: activation} if version == "3" else {MARKER: {"activation_fn": activation, "version": "4"}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **marker}))
    bundle = load_bundle(directory)
    (config,) = bundle.objectives
    assert isinstance(config, RerankingConfig)
    assert config.activation == ACTIVATIONS[activation]
    wanted = scored_by_them(directory)
    assert wanted.std() > 1e-4
    np.testing.assert_allclose(our_scores(bundle), wanted, atol=1e-5)


def test_their_classifiers_of_pairs_stay_classifiers_and_other_activations_are_refused(tmp_path: Path) -> None:
    plain = their_model(tmp_path / "three", "bert", "ForSequenceClassification", num_labels=3)
    cross_encoder(plain).save_pretrained(str(tmp_path / "nli"))
    (config,) = load_bundle(tmp_path / "nli").objectives
    assert isinstance(config, ClassificationConfig)
    assert (len(config.labels), config.kind) == (3, "multi-class")
    single = their_model(tmp_path / "one", "bert", "ForSequenceClassification", num_labels=1)
    path = single / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), MARKER: {"activation_fn": "torch.nn.Hardtanh"}}))
    with pytest.raises(ArtefactError, match=r"activation of the scores is torch\.nn\.Hardtanh"):
        load_bundle(single)
