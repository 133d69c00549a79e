"""The fine-tuning loop with each choice of what is trained: it learns, and a cache of features changes nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens
from larvatus.core.targets import ClassTargets, WordTags
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.nn.lora import merge_lora
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.settings import Runtime

VOCABULARY = 20
LABELS = ("no", "yes")
HEADS = {
    "classify": ClassificationConfig(labels=LABELS, dropout=0.0, pool="mean"),
    "tag": TaggingConfig(labels=LABELS, dropout=0.0),
}


class Data:
    """A text is of class 1, and its words are tagged 1, where it has the token 7."""

    def __init__(self, size: int = 48) -> None:
        draw = np.random.default_rng(3)
        self.rows = [draw.integers(8, VOCABULARY, draw.integers(3, 9)) for _ in range(size)]
        for number, row in enumerate(self.rows):
            if number % 2:
                row[draw.integers(0, len(row))] = 7

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        rows = [self.rows[number] for number in examples]
        tokens = TokenBatch.of([row.tolist() for row in rows])
        places, counts = np.arange(tokens.size), tokens.lengths
        pieces = WordTokens(rows=places, words=places, counts=counts, starts=counts, total=tokens.size)
        labels = np.array([int(7 in row) for row in rows])
        tags = (tokens.ids == 7).astype(np.int64)
        return TrainingBatch(
            tokens=dataclasses.replace(tokens, word_tokens=pieces),
            targets={
                ClassTargets: ClassTargets(labels=labels, weights=np.ones(len(rows), np.float32)),
                WordTags: WordTags(tags=tags, counts=tokens.lengths),
            },
        )


def model(task: str) -> Network:
    shape = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=16, init=0.3)
    return Network.build(shape, [HEADS[task]], VOCABULARY, seed=1)


def tuning(whole: Network, word: str, *, features: Features | None = None) -> Trainer:
    config = TrainConfig(epochs=4, batch=8, rate=0.01, trained=TrainableConfig.read(word))
    return Trainer(whole, Data(), FineTuneArguments(config=config, runtime=Runtime()), seed=1, features=features)


def loss_of(whole: Network) -> float:
    with torch.inference_mode():
        (loss,) = whole.eval()(on_device(Data().batch(np.arange(48)), "cpu")).values()
        return float(loss.mean)


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("word", ["all", "last1", "lora4", "head"])
def test_each_choice_learns(task: str, word: str) -> None:
    whole = model(task)
    before = loss_of(whole)
    tuning(whole, word).run()
    after = loss_of(whole)
    assert after < 0.9 * before  # a head alone learns least, over an encoder of random weights
    merge_lora(whole.encoder)
    assert loss_of(whole) == pytest.approx(after, rel=1e-4)
    assert list(whole.state_dict()) == list(model(task).state_dict())


@pytest.mark.parametrize("task", HEADS)
def test_a_cache_of_features_gives_the_same_head(task: str) -> None:
    cached, through = model(task), model(task)
    features = Features.build(cached, Data(), ScoringOptions(tokens=50))
    tuning(cached, "head", features=features).run()
    tuning(through, "head").run()
    expected = through.state_dict()
    for name, tensor in cached.state_dict().items():
        assert_close(tensor, expected[name], rtol=1e-3, atol=1e-4)
