"""Heads that read other layers than the last, and BiLSTMs on top: against plain loops, and through save and load."""

import json
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import larvatus as lv
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig, TaggingConfig
from larvatus.models.nn.layer_mix import LayerConcat, LayerMix, read_layers

TEXTS = [("the river was wide and deep", "water"), ("turn your homework in please", "school")] * 4
TAGS = ["D", "N", "V", "A"]
WORDS = [(["the", "river", "was", "wide"], TAGS), (["a", "bank", "was", "deep"], TAGS)] * 4
QUESTIONS = [
    {"id": str(n), "question": "was the river wide ?", "context": "the river was wide and deep .",
     "answers": {"text": ["wide"], "answer_start": [14]}}
    for n in range(8)
]  # fmt: skip


def test_words_say_which_layers() -> None:
    read = {word: read_layers(word, layers=6) for word in ("all", "last4", "concat2", "0", "-2", "6")}
    layers = {word: made.layers for word, made in read.items() if made is not None}
    assert layers == {
        "all": (0, 1, 2, 3, 4, 5, 6), "last4": (3, 4, 5, 6), "concat2": (5, 6), "0": (0,), "-2": (5,), "6": (6,)
    }  # fmt: skip
    assert {word for word, made in read.items() if isinstance(made, LayerMix)} == {"all", "last4"}
    assert read_layers(False, layers=6) is None
    for word, said in (("last7", "has 6 layers"), ("-8", "no layer -8"), ("sum4", "is not known; give all, last4")):
        with pytest.raises(UsageError, match=said):
            read_layers(word, layers=6)


def test_side_by_side() -> None:
    states = torch.randn(2, 5, 3)
    assert_close(LayerConcat([1, 2])(states), torch.cat([states[0], states[1]], dim=-1))
    assert_close(LayerConcat([0])(states[:1]), states[0])


@pytest.fixture
def batch() -> TrainingBatch[Any]:
    return TrainingBatch(tokens=TokenBatch.of([[2, 7, 4, 9, 3], [2, 4, 3]]).map(torch.from_numpy), targets={})


def test_a_classifier_with_a_bilstm_equals_a_loop_over_texts(tiny_model: Any, batch: TrainingBatch[Any]) -> None:
    config = ClassificationConfig(labels=("a", "b"), pool="mean", dense="none", lstm=3)
    network = tiny_model(objectives=(config,))
    head = network.heads["classification"]
    z_ND = network.encoder(batch.tokens)
    rows = [head.lstm.lstm(part[:, None])[0][:, 0].mean(0) for part in z_ND.split([5, 3])]
    assert_close(head.scores(head.states(network.encoder, batch.tokens), batch), head.classifier(torch.stack(rows)))


def test_answers_over_two_layers_side_by_side_equal_a_loop(tiny_model: Any, batch: TrainingBatch[Any]) -> None:
    network = tiny_model(objectives=(QuestionAnsweringConfig(mix="concat2", lstm=3),))
    head = network.heads["answering"]
    low, top = network.encoder(batch.tokens, layers=[1, 2])
    parts = torch.cat([low, top], dim=-1).split([5, 3])
    naive = torch.cat([head.classifier(head.lstm.lstm(part[:, None])[0][:, 0]) for part in parts])
    assert_close(head.scores(head.states(network.encoder, batch.tokens), batch), naive)


def test_a_mix_of_all_is_what_it_was(tiny_model: Any) -> None:
    old, new = (tiny_model(objectives=(TaggingConfig(labels=("a", "b"), mix=mix),)) for mix in (True, "all"))
    assert {n: t.shape for n, t in old.state_dict().items()} == {n: t.shape for n, t in new.state_dict().items()}
    assert all(torch.equal(a, b) for a, b in zip(old.state_dict().values(), new.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("task", "train", "settings", "ask"),
    [
        ("classify", TEXTS, {"lstm": 4}, "the river was deep"),
        ("classify", TEXTS, {"layers": "concat2", "trained": "head"}, "the river was deep"),
        ("tag", WORDS, {"layers": "-2", "trained": "head", "lstm": 4}, "the river was deep"),
        ("answer", QUESTIONS, {"layers": "last2", "lstm": 4}, ("was it ?", "the bank was wide")),
    ],
)
def test_what_was_learnt_is_saved_and_loaded(
    tiny_directory: Any, tmp_path: Any, task: str, train: Any, settings: Any, ask: Any
) -> None:
    given = {"train": train, "dev": train[:4], "epochs": 1, "device": "cpu", **settings}
    kept = lv.finetune(task, tiny_directory, **given)
    saved = lv.finetune(task, tiny_directory, out=tmp_path / "run", **given)
    assert saved.predict(ask) == kept.predict(ask)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model_type"] == "larvatus"  # `transformers` has no class for it


def test_what_does_not_go_together_is_refused(tiny_directory: Any) -> None:
    for settings, said in (
        ({"lstm": 4, "trained": "head"}, "learns with the encoder"),
        ({"lstm": 4, "layers": "all"}, "reads the last layer"),
        ({"layers": "last9"}, "its last 9 cannot be read"),
    ):
        with pytest.raises(UsageError, match=said):
            lv.finetune("classify", tiny_directory, train=TEXTS, dev=TEXTS, device="cpu", **settings)
