"""Directories of models that choose, both ways: `…ForMultipleChoice` of every family, from strings on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.data.labelled.records import Place
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads.sequence_score import MultipleChoiceConfig
from larvatus.tasks.choose.encode import encode_choices, ending_scores
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.registry import TASKS, task_of
from larvatus.tasks.scoring import ScoringOptions
from tests.models.bundle.families import FAMILIES, kept, kept_by_them, save
from tests.models.bundle.their_tokenizers import their_model
from tests.models.bundle.theirs import theirs_from, transformers

CHOICES = [
    ("The debugger stops.", ["It prints the list.", "a", "Set a breakpoint, please! It doesn't."]),
    ("What does it print?", ["the file " * 12, "No.", "It prints the arguments, naïvely."]),
]
OURS: dict[str, Any] = {"dropout": 0.25, "temperature": 1.5}


@torch.no_grad()
def equal(bundle: Bundle, model: Any, tokenizer: Any) -> None:
    """Their tokenizer and padding on their side, our reading on ours."""
    task = TASKS["choose"]
    examples = [task.example(given, Place("text", number)) for number, given in enumerate(CHOICES)]
    ours = ending_scores(bundle.network, encode_choices(bundle, examples, WindowOptions.of(bundle)), ScoringOptions())
    segments = bundle.family in ("bert", "albert", "electra")
    firsts = [context for context, endings in CHOICES for _ in endings]
    seconds = [ending for _, endings in CHOICES for ending in endings]
    batch = tokenizer(firsts, seconds, padding=True, return_tensors="pt", return_token_type_ids=segments)
    wanted = model.eval()(**{name: value.view(len(CHOICES), 3, -1) for name, value in batch.items()}).logits
    assert ours.std() > 0.05  # not equal for being nothing
    np.testing.assert_allclose(ours, wanted.numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, family: str) -> None:
    directory = their_model(tmp_path, family, "ForMultipleChoice")
    bundle = load_bundle(directory)
    (config,) = bundle.objectives
    assert isinstance(config, MultipleChoiceConfig)
    assert (bundle.family, bundle.unused, task_of(bundle).name) == (family, (), "choose")
    assert config.dropout == {"distilbert": 0.2, "modernbert": 0.0}.get(family, 0.1)
    model = transformers.AutoModelForMultipleChoice.from_pretrained(directory)
    equal(bundle, model, transformers.AutoTokenizer.from_pretrained(directory))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_transformers_loads_with_equal_logits(tmp_path: Path, family: str) -> None:
    parent = load_bundle(their_model(tmp_path / "parent", family, "Model"))
    pooling = {"pool": "mean"} if family == "modernbert" else {}
    config = MultipleChoiceConfig(**{**default_head_settings(parent, "choosing"), **OURS, **pooling})
    bundle, taken = attach_head(parent, config, seed=1)
    assert bool(taken) == (family in ("bert", "roberta", "xlm-roberta", "albert", "mpnet"))  # their pooler is ours
    with torch.no_grad():
        for parameter in bundle.network.objectives.parameters():
            parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    directory = save(tmp_path / "ours", bundle)
    model = theirs_from(transformers.AutoModelForMultipleChoice, directory)
    assert model.config.model_type == family
    assert "id2label" not in json.loads((directory / "config.json").read_text())
    equal(bundle, model, transformers.AutoTokenizer.from_pretrained(tmp_path / "parent"))
    kept(bundle, directory)
    kept_by_them(bundle, model, tmp_path / "again")
