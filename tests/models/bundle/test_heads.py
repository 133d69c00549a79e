"""A new head on a loaded encoder takes over what `transformers` would, and leaves the model as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import get_layout
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.models.bundle.families import HEADS, LABELS, Make, equal
from tests.models.bundle.theirs import transformers

PARENTS = {
    "bert": ("ForPreTraining", "ForMaskedLM", "Model"),
    "roberta": ("ForMaskedLM", "Model"),
    "modernbert": ("ForMaskedLM",),
    "distilbert": ("ForMaskedLM",),
    "mpnet": ("Model",),
    "albert": ("ForPreTraining", "Model"),
    "electra": ("ForPreTraining", "Model"),
}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in PARENTS for kind in PARENTS[family]])
def test_a_new_head_takes_over_what_transformers_does(theirs: Make, family: str, kind: str) -> None:
    directory, _ = theirs(family, kind)
    parent = load_bundle(directory)
    for config, auto in (
        (
            ClassificationConfig(labels=LABELS, **default_head_settings(parent, "classification")),
            transformers.AutoModelForSequenceClassification,
        ),
        (
            TaggingConfig(labels=LABELS, **default_head_settings(parent, "tagging")),
            transformers.AutoModelForTokenClassification,
        ),
    ):
        ready, taken = attach_head(parent, config, seed=1)
        model, info = auto.from_pretrained(directory, num_labels=3, output_loading_info=True)
        for name, tensor in ready.network.state_dict().items():
            if not name.startswith("objectives."):
                continue
            (other,) = get_layout(family).tensor_names(name)
            assert (name in taken) == (other not in info["missing_keys"]), name
            if name in taken:
                assert torch.equal(tensor, model.state_dict()[other])
    assert ready.objectives == (config,)


def test_the_pooler_is_spare_until_a_head_wants_it(theirs: Make) -> None:
    directory, model = theirs("bert", "Model")
    parent = load_bundle(directory)
    assert parent.unused == ("bert.pooler.dense.bias", "bert.pooler.dense.weight")
    assert torch.equal(parent.unused_tensors["bert.pooler.dense.weight"], model.pooler.dense.weight)
    before = {name: tensor.clone() for name, tensor in parent.network.state_dict().items()}
    ready, taken = attach_head(parent, ClassificationConfig(labels=LABELS), seed=3)
    assert taken == ("objectives.classification.dense.bias", "objectives.classification.dense.weight")
    with torch.no_grad():  # what is trained now is a copy
        for parameter in ready.network.parameters():
            parameter += 1
    assert all(torch.equal(before[name], tensor) for name, tensor in parent.network.state_dict().items())
    assert torch.equal(parent.unused_tensors["bert.pooler.dense.weight"], model.pooler.dense.weight)


def test_what_is_new_is_drawn_by_the_seed_and_its_name(theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "ForMaskedLM")[0])
    config = ClassificationConfig(labels=LABELS)
    one, same, other = (attach_head(parent, config, seed=seed)[0].network.heads["classification"] for seed in (1, 1, 2))
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    built = Network.build(parent.model, (config,), parent.architecture.vocabulary, seed=1)
    assert torch.equal(one.classifier.weight, built.heads["classification"].classifier.weight)


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_for_the_same_labels_is_taken_over_whole(theirs: Make, kind: str) -> None:
    directory, model = theirs("bert", kind)
    parent = load_bundle(directory)
    (config,) = parent.objectives
    ready, taken = attach_head(parent, config, seed=1)
    assert f"objectives.{HEADS[kind]}.classifier.weight" in taken
    equal(ready, model)
    renamed = type(config)(labels=("x", "y", "z"))
    fresh, taken = attach_head(parent, renamed, seed=1)
    assert all("classifier" not in name for name in taken)
    head = fresh.network.heads[HEADS[kind]]
    assert not torch.equal(head.classifier.weight, parent.network.heads[HEADS[kind]].classifier.weight)


def test_a_tagger_passes_no_classifier_on_to_texts(theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "ForTokenClassification")[0])
    assert attach_head(parent, ClassificationConfig(labels=LABELS), seed=1)[1] == ()


def test_a_model_of_our_own_layout_has_the_heads_of_the_family_it_is_like(
    tmp_path: Path, tiny_model: Any, save_tiny: Any
) -> None:
    plain, heads = (MaskedLMConfig(), NextSentenceConfig()), (MaskedLMConfig(), NextSentenceConfig(pooler=False))
    raw = load_bundle(save_tiny(tmp_path / "raw", tiny_model(objectives=heads), heads))
    assert raw.family == "larvatus"
    assert default_head_settings(raw, "classification") == {"pool": "cls", "dense": "tanh", "dense_norm": False}
    config = ClassificationConfig(labels=LABELS, **default_head_settings(raw, "classification"))
    assert attach_head(raw, config, seed=1)[1] == ()
    pooled = load_bundle(save_tiny(tmp_path / "pre", tiny_model(objectives=plain, norm="pre"), plain))
    assert default_head_settings(pooled, "classification")["dense"] == "tanh"
    assert attach_head(pooled, config, seed=1)[0].objectives == (config,)
