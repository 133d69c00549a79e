"""Directories of models that answer questions, both ways: `…ForQuestionAnswering` of every family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch
from larvatus.data.text.special_tokens import encode_batch
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.nn.device import on_device
from tests.models.bundle.families import FAMILIES, Make, kept, kept_by_them, refused_in_one_line, save
from tests.models.bundle.theirs import TEXTS, equal_tensors, scramble, theirs_from, transformers

OURS: dict[str, Any] = {"dropout": 0.25, "temperature": 1.5, "null": True, "threshold": -0.5, "longest": 12}


@torch.no_grad()
def equal(bundle: Bundle, model: Any) -> None:
    batch = encode_batch(bundle.tokenizer, TEXTS)
    (head,) = bundle.network.heads.values()
    assert isinstance(head, QuestionAnswering)
    tokens = on_device(batch, "cpu")
    ours = head.logits(bundle.network.encoder(tokens), TrainingBatch(tokens=tokens, targets={}))
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=bundle.tokenizer.padding_id)
    real = ids != bundle.tokenizer.padding_id
    found = model.eval()(input_ids=ids, attention_mask=real.long())
    theirs = torch.stack([found.start_logits, found.end_logits], -1)[real]
    assert ours.std() > 0.01
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_we_load_with_equal_logits(theirs: Make, family: str) -> None:
    directory, model = theirs(family, "ForQuestionAnswering")
    bundle = load_bundle(directory)
    (config,) = bundle.objectives
    assert isinstance(config, QuestionAnsweringConfig)
    assert (bundle.family, bundle.unused) == (family, ())
    assert config.dropout == {"distilbert": 0.1}.get(family, 0.0)
    equal(bundle, model)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_transformers_loads_with_equal_logits(tmp_path: Path, theirs: Make, family: str) -> None:
    parent = load_bundle(theirs(family, "Model")[0])
    bundle, _ = attach_head(
        parent, QuestionAnsweringConfig(**default_head_settings(parent, "answering"), **OURS), seed=1
    )
    scramble(bundle.network)
    directory = save(tmp_path / "ours", bundle)
    model = theirs_from(transformers.AutoModelForQuestionAnswering, directory)
    assert model.config.model_type == family
    equal(bundle, model)
    kept(bundle, directory)
    kept_by_them(bundle, model, tmp_path / "again")


def test_a_mix_of_layers_is_written_in_our_own_layout(tmp_path: Path, theirs: Make) -> None:
    bundle, _ = attach_head(load_bundle(theirs("bert", "Model")[0]), QuestionAnsweringConfig(mix=True), seed=1)
    directory = save(tmp_path / "ours", bundle)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "larvatus"
    assert load_bundle(directory).objectives == bundle.objectives


def test_a_head_that_answers_is_taken_over_whole(theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "ForQuestionAnswering")[0])
    ready, taken = attach_head(parent, QuestionAnsweringConfig(null=True, longest=5), seed=3)
    assert taken == ("objectives.answering.classifier.bias", "objectives.answering.classifier.weight")
    equal_tensors(ready.network, parent.network)
    fresh, nothing = attach_head(
        load_bundle(theirs("bert", "ForTokenClassification")[0]), QuestionAnsweringConfig(), seed=3
    )
    assert nothing == ()
    assert fresh.objectives == (QuestionAnsweringConfig(),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": None}, "a start and an end, not 3 labels"),
        ({"larvatus_head": {"longest": 0}}, "longest = 0 must lie between 1"),
        ({"larvatus_head": {"threshold": "high"}}, "Expected `float`"),
        ({"larvatus_head": {"labels": ["x", "y"]}}, "larvatus_head has 'labels'"),
        ({"larvatus_head": {"heat": 3}}, "larvatus_head has 'heat'"),
    ],
)
def test_a_head_that_is_described_badly_is_refused_in_one_line(
    theirs: Make, fields: dict[str, Any], words: str
) -> None:
    directory, _ = theirs("bert", "ForQuestionAnswering")
    refused_in_one_line(directory, words, **fields)
