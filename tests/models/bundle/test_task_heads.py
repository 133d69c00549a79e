"""Directories of fine-tuned models, both ways: `…ForSequenceClassification` and `…ForTokenClassification`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import LAYOUTS
from larvatus.models.bundle.huggingface.task_heads import TaskSettings
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import HEAD_TYPES, ClassificationConfig, TaggingConfig
from larvatus.models.heads.classification import PROBLEM_TYPES
from tests.models.bundle.families import (
    AUTO,
    FAMILIES,
    HEADS,
    LABELS,
    Make,
    equal,
    headed,
    kept_by_them,
    refused_in_one_line,
    save,
    theirs_of,
)
from tests.models.bundle.theirs import edit_config, equal_tensors

OURS: dict[str, dict[str, Any]] = {
    "classification": {"dropout": 0.25, "temperature": 1.5, "focal": 2.0, "class_weights": (1.0, 2.0, 0.5)},
    "tagging": {"dropout": 0.25, "temperature": 1.5, "pool": "mean", "learn": "words"},
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_we_load_with_equal_logits(theirs: Make, family: str, kind: str) -> None:
    directory, model = theirs(family, kind)
    bundle = load_bundle(directory)
    assert bundle.family == family
    (config,) = bundle.objectives
    assert isinstance(config, ClassificationConfig if kind == "ForSequenceClassification" else TaggingConfig)
    assert config.labels == LABELS
    equal(bundle, model)


@pytest.mark.parametrize("head", AUTO)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, theirs: Make, family: str, head: str
) -> None:
    bundle = headed(load_bundle(theirs(family, "Model")[0]), head, **OURS[head])
    model = theirs_of(save(tmp_path / "ours", bundle), head)
    assert model.config.model_type == family
    assert model.config.id2label == dict(enumerate(LABELS))
    assert model.config.label2id == {label: number for number, label in enumerate(LABELS)}
    equal(bundle, model)
    back = load_bundle(tmp_path / "ours")
    assert (back.objectives, back.model, back.unused) == (bundle.objectives, bundle.model, ())
    equal_tensors(back.network, bundle.network)
    kept_by_them(bundle, model, tmp_path / "again")


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", LABELS),
        ("multi_label_classification", LABELS),
        ("multi_label_classification", ("toxic",)),
        ("regression", ("similarity",)),
    ],
)
def test_the_kind_of_labels_is_their_problem_type(
    tmp_path: Path, theirs: Make, problem: str, labels: tuple[str, ...]
) -> None:
    kind = next(kind for kind, name in PROBLEM_TYPES.items() if name == problem)
    bundle = headed(load_bundle(theirs("bert", "Model")[0]), "classification", kind=kind, labels=labels)
    model = theirs_of(save(tmp_path / "ours", bundle), "classification")
    assert (model.config.problem_type, model.config.num_labels) == (problem, len(labels))
    assert load_bundle(tmp_path / "ours").objectives == bundle.objectives


@pytest.mark.parametrize(("labels", "problem"), [(("one",), "regression"), (LABELS, "single_label_classification")])
def test_where_no_problem_type_is_said_it_is_as_transformers_takes_it(
    theirs: Make, labels: tuple[str, ...], problem: str
) -> None:
    (config,) = load_bundle(theirs("bert", "ForSequenceClassification", labels)[0]).objectives
    assert isinstance(config, ClassificationConfig)
    assert (PROBLEM_TYPES[config.kind], config.labels) == (problem, labels)


@pytest.mark.parametrize(
    ("family", "kind", "fields", "dropout"),
    [
        ("bert", "ForTokenClassification", {"hidden_dropout_prob": 0.3}, 0.3),
        ("bert", "ForTokenClassification", {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.0}, 0.0),
        ("distilbert", "ForSequenceClassification", {"dropout": 0.3}, 0.2),
        ("distilbert", "ForSequenceClassification", {"seq_classif_dropout": 0.4}, 0.4),
        ("distilbert", "ForTokenClassification", {"dropout": 0.3, "seq_classif_dropout": 0.4}, 0.3),
        ("mpnet", "ForSequenceClassification", {"hidden_dropout_prob": 0.3}, 0.3),
        ("albert", "ForSequenceClassification", {"classifier_dropout_prob": 0.4}, 0.4),
        ("modernbert", "ForSequenceClassification", {"classifier_dropout": 0.4}, 0.4),
    ],
)
def test_dropout_is_read_where_each_family_has_it(
    theirs: Make, family: str, kind: str, fields: dict[str, Any], dropout: float
) -> None:
    directory, model = theirs(family, kind, **fields)
    (config,) = load_bundle(directory).objectives
    assert isinstance(config, ClassificationConfig | TaggingConfig)
    assert config.dropout == dropout
    last = [part.p for name, part in model.named_modules() if isinstance(part, torch.nn.Dropout)][-1]
    assert last == dropout


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_modernbert_pools_as_its_config_says(tmp_path: Path, theirs: Make, pool: str) -> None:
    directory, model = theirs("modernbert", "ForSequenceClassification", classifier_pooling=pool)
    bundle = load_bundle(directory)
    equal(bundle, model)
    assert default_head_settings(bundle, "classification") == {"pool": pool, "dense": "gelu", "dense_norm": True}
    assert theirs_of(save(tmp_path / "ours", bundle), "classification").config.classifier_pooling == pool


@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        ("bert", "classification", {"pool": "mean"}),
        ("bert", "classification", {"dense": "none"}),
        ("bert", "classification", {"dense": "gelu"}),
        ("roberta", "classification", {"mix": True}),
        ("modernbert", "classification", {"pool": "max"}),
        ("modernbert", "tagging", {"dense": "none"}),
        ("distilbert", "tagging", {"lstm": 5}),
        ("albert", "tagging", {"mix": True, "lstm": 5, "crf": True}),
    ],
)
def test_what_no_family_has_is_written_in_our_own_layout(
    tmp_path: Path, theirs: Make, family: str, head: str, settings: dict[str, Any]
) -> None:
    bundle = headed(load_bundle(theirs(family, "Model")[0]), head, **settings)
    directory = save(tmp_path / "ours", bundle)
    found = json.loads((directory / "config.json").read_text())["model_type"]
    assert found == ("electra" if settings == {"dense": "gelu"} else "larvatus")  # which is BERT but for that
    back = load_bundle(directory)
    assert back.objectives == bundle.objectives
    equal_tensors(back.network, bundle.network)
    assert not (directory / "crf.safetensors").exists()


# ── bad input

BAD: list[tuple[dict[str, Any], str]] = [
    ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "id2label must name the classes 0, 1, 2"),
    ({"id2label": {}}, "id2label must name"),
    ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "same name to two classes"),
    ({"id2label": ["a", "b", "c"]}, "Expected `object"),
    ({"id2label": {"0": 1, "1": 2, "2": 3}}, "Expected `str`"),
    ({"num_labels": 4}, "names 3 classes, but num_labels is 4"),
    ({"id2label": None, "num_labels": 10**9}, "num_labels = 1000000000 must lie between 1"),
    ({"id2label": None, "num_labels": 2**21}, "num_labels = 2,097,152 is not a number of classes"),
    ({"id2label": None, "num_labels": 0}, "num_labels = 0 must lie"),
    ({"label2id": {"bad": 2, "fair": 1, "good": 0}}, "another order"),
    ({"id2label": {str(number): f"c{number}" for number in range(4)}}, "misshapen: classifier.weight"),
    ({"id2label": None}, "misshapen"),
    ({"problem_type": "ranking"}, "problem_type"),
    ({"problem_type": "regression"}, "regression has one number"),
    ({"classifier_dropout": 3}, "dropout = 3.0 must be at least 0"),
    ({"classifier_dropout": "much"}, "Expected `float`"),
    ({"larvatus_head": 3}, "larvatus_head"),
    ({"larvatus_head": {"heat": 3}}, "larvatus_head has 'heat'"),
    ({"larvatus_head": {"labels": ["x", "y"]}}, "larvatus_head has 'labels'"),
    ({"larvatus_head": {"temperature": 0}}, "temperature = 0.0 must lie between"),
    ({"larvatus_head": {"class_weights": [1.0]}}, "3 classes, but 1 class weights"),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_a_head_that_is_described_badly_is_refused_in_one_line(
    theirs: Make, fields: dict[str, Any], words: str
) -> None:
    directory, _ = theirs("bert", "ForSequenceClassification")
    refused_in_one_line(directory, words, **fields)


def test_classes_without_names_are_numbered(theirs: Make) -> None:
    directory, model = theirs("bert", "ForSequenceClassification")
    edit_config(directory, "id2label", "label2id", num_labels=3)
    bundle = load_bundle(directory)
    (config,) = bundle.objectives
    assert isinstance(config, ClassificationConfig)
    assert config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    equal(bundle, model)
    two, _ = theirs("bert", "ForTokenClassification", ("no", "yes"))
    edit_config(two, "id2label", "label2id")
    (tags,) = load_bundle(two).objectives
    assert isinstance(tags, TaggingConfig)
    assert tags.labels == ("LABEL_0", "LABEL_1")


SCALARS = st.none() | st.booleans() | st.integers(-3, 5) | st.integers() | st.floats() | st.text(max_size=4)
VALUES = (
    SCALARS
    | st.sampled_from(["0", "mean", "regression", "multi_label_classification"])
    | st.lists(SCALARS, max_size=3)
    | st.dictionaries(st.sampled_from(["0", "1", "2", "crf", "temperature", "dropout", "pool", "x"]), SCALARS)
)
NAMES = [*TaskSettings.__struct_fields__, *(f"classifier_{name}" for name in ("dropout", "dropout_prob", "pooling"))]


@settings(max_examples=100, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS[:-1]),
    head=st.sampled_from(["classification", "tagging", "answering"]),
    fields=st.dictionaries(st.sampled_from([*NAMES, "seq_classif_dropout"]), VALUES, max_size=4),
)
def test_no_config_whatever_ends_in_another_error(layout: Any, head: str, fields: dict[str, Any]) -> None:
    name = f"{layout.tasks.family}{HEAD_TYPES[head].suffix}"
    config = {"model_type": layout.model_type, "type_vocab_size": 1, "architectures": [name], **fields}
    try:
        architecture = layout.architecture(config, source=Path("config.json"), names=frozenset())
    except ArtefactError:
        return
    assert layout.unsupported(architecture) is None
    again = layout.architecture(layout.config(architecture, pad=1), source=Path("config.json"), names=frozenset())
    assert again == architecture
