"""Whole runs with each choice of what is trained: what comes out is a plain model with the scores that were told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import Struct

from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.network import Network
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.tag import TagOptions
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainable import TrainableConfig
from tests.tasks.tuning import finetune_tags, finetune_texts

WORDS = [
    "the",
    "a",
    "river",
    "bank",
    "of",
    "was",
    "wide",
    "deep",
    "and",
    "turn",
    "your",
    "homework",
    "in",
    "please",
    "run",
]


@pytest.fixture(scope="module")
def bundle(
    tiny_model: Callable[..., Network], save_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    return load_bundle(save_tiny(tmp_path_factory.mktemp("tiny"), tiny_model()))


def sentences(size: int, seed: int) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(seed)
    return [tuple(draw.choice(WORDS, draw.integers(2, 9)).tolist()) for _ in range(size)]


def texts(size: int, seed: int) -> Dataset[TextExample]:
    rows = enumerate(sentences(size, seed))
    made = (TextExample(" ".join(w), None, "wet" if "river" in w else "dry", Place("t", n)) for n, w in rows)
    return Dataset(tuple(made), "t", kind="multi-class")


def tagged(size: int, seed: int) -> Dataset[TaggedExample]:
    rows = enumerate(sentences(size, seed))
    made = (TaggedExample(w, tuple("N" if o in WORDS[2:4] else "X" for o in w), Place("t", n)) for n, w in rows)
    return Dataset(tuple(made), "t")


def job(word: str, options: Struct | None = None) -> FineTuneArguments:
    config = TrainConfig(epochs=2, batch=8, rate=0.01, trained=TrainableConfig.read(word))
    return FineTuneArguments(config=config, seeds=(3, 4), options=options)


@pytest.mark.parametrize("word", ["all", "last1", "lora", "head"])
def test_the_model_has_the_names_of_any_other_and_the_scores_that_were_told(bundle: Bundle, word: str) -> None:
    tuned = finetune_texts(bundle, texts(40, 1), texts(20, 2), job(word))
    whole = tuned.bundle.network
    assert {n for n in whole.state_dict() if n.startswith("encoder.")} == {
        n for n in bundle.network.state_dict() if n.startswith("encoder.")
    }
    assert tuned.validation is not None
    assert tuned.scores is not None
    assert tuned.validation.scores(whole, ScoringOptions()).values == pytest.approx(tuned.scores.values)
    same = all(
        torch.equal(tensor, bundle.network.state_dict()[name])
        for name, tensor in whole.state_dict().items()
        if name.startswith("encoder.")
    )
    assert same == (word == "head")


@pytest.mark.parametrize("settings", [{}, {"lstm": 8, "mix": True}], ids=["linear", "lstm over a mix"])
def test_a_frozen_encoder_reads_everything_once_for_all_seeds(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    built: list[Features] = []
    build = Features.build

    def counted(*args: object, **more: object) -> Features:
        built.append(build(*args, **more))  # type: ignore[arg-type]
        return built[-1]

    monkeypatch.setattr(Features, "build", counted)
    tuned = finetune_tags(bundle, tagged(40, 1), tagged(20, 2), job("head", TagOptions(**settings)))
    assert len(built) == 2  # training and held-out examples
    assert len(tuned.runs) == 2
    assert tuned.validation is not None
    assert tuned.scores is not None
    assert tuned.validation.scores(tuned.bundle.network, ScoringOptions()).values == pytest.approx(tuned.scores.values)
