"""Held-out texts and tags scored from frozen features: the same scores as through the encoder, long texts included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.tasks.classify.classify import LabelledTexts
from larvatus.tasks.classify.task import TextValidation
from larvatus.tasks.encoding.sequences import text_sequences, word_sequences
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.tag import TaggedWords
from larvatus.tasks.tag.task import TagValidation
from tests.tasks.aligned import align_texts

TEXTS = ["the river bank was wide", "turn your homework in please . " * 7, "", "a deep river and a bank " * 4, "runs"]
SCORING = ScoringOptions(tokens=40)


def same_scores(cached: Any, plain: Any, model: Network) -> None:
    again, scores = cached.scores(model, SCORING), plain.scores(model, SCORING)
    assert again.values == scores.values
    assert again.validation_loss == pytest.approx(scores.validation_loss, rel=1e-5)
    fitted, expected = (held.calibration(model, SCORING).temperature for held in (cached, plain))
    assert fitted == pytest.approx(expected, rel=1e-3)


def learn_head(model: Network) -> None:
    for parameter in model.objectives.parameters():
        parameter.data.add_(0.1)


@pytest.mark.parametrize("merge", ["mean", "max"])
def test_texts(tiny_model: Callable[..., Network], tiny_tokenizer: Tokenizer, merge: str) -> None:
    config = ClassificationConfig(labels=("a", "b"))
    model = tiny_model(objectives=[config])
    sequences = text_sequences(tiny_tokenizer, TEXTS, limit=16)
    assert len(sequences.lengths) > len(TEXTS)
    data = LabelledTexts(sequences, np.array([0, 1, 0, 1, 1]))
    plain = TextValidation(data, config, "accuracy", merge)  # type: ignore[arg-type]
    cached = plain.read_once(model, SCORING)
    learn_head(model)
    assert_allclose(cached.logits(model, SCORING), plain.logits(model, SCORING), atol=1e-5)
    same_scores(cached, plain, model)


@pytest.mark.parametrize("settings", [{}, {"pool": "mean", "learn": "words"}, {"lstm": 4, "mix": True}, {"crf": True}])
def test_tags(tiny_model: Callable[..., Network], tiny_tokenizer: Tokenizer, settings: dict[str, object]) -> None:
    config = TaggingConfig(labels=("a", "b", "c"), **settings)  # type: ignore[arg-type]
    model = tiny_model(objectives=[config])
    sequences = word_sequences(tiny_tokenizer, align_texts(tiny_tokenizer, TEXTS), limit=16)
    assert sequences.words is not None
    tags = np.arange(int(sequences.words.counts.sum())) % 3
    data = TaggedWords(sequences, tags)
    plain = TagValidation(data, config, "accuracy")
    cached = plain.read_once(model, SCORING)
    learn_head(model)
    assert_allclose(cached.row_scores(model, SCORING), plain.row_scores(model, SCORING), atol=1e-5)
    same_scores(cached, plain, model)
