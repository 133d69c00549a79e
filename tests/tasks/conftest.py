"""Tiny fine-tuned models with random weights, and labelled data of their few words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from larvatus.tasks.classify.classify import class_scores
from larvatus.tasks.encoding.sequences import text_sequences
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.task import SpansOptions
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from tests.tiny import WORDS, make_tokenizer, save_model

TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
PLAIN = [word for word in WORDS.split() if not word.startswith("##")]


@pytest.fixture(scope="session")
def tuned(
    tiny_tokenizer: Any, tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Bundle]:
    """A function that makes a model directory with a head: `tuned(ClassificationConfig(…), seed=1)`."""

    def make(config: Any, seed: int = 0) -> Bundle:
        directory: Path = tmp_path_factory.mktemp("tuned") / "model"
        model = tiny_model(seed, (config,))
        if isinstance(config, ClassificationConfig):
            sequences = text_sequences(tiny_tokenizer, [one.text for one in texts([0] * 40)], limit=32)
            shift = class_scores(model, sequences, ScoringOptions()).mean(0)
            with torch.no_grad():  # no class has an advantage over the others
                model.heads["classification"].classifier.bias -= torch.from_numpy(shift)
        return load_bundle(save_tiny(directory, model, (config,)))

    return make


@pytest.fixture(scope="session")
def tagger(tuned: Callable[..., Bundle]) -> Path:
    return Path(tuned(TaggingConfig(labels=TAGS, scheme="BIO")).path)


def tiny_bert(directory: Path, words: list[str]) -> Bundle:
    """A BERT of random weights whose vocabulary has these words."""
    tokenizer = make_tokenizer(words)
    shape = TransformerConfig(layers=2, hidden=32, heads=2, max_positions=32, init=0.2, dropout=0.0)
    model = Network.build(shape, [MaskedLMConfig()], tokenizer.size, seed=1)
    return load_bundle(save_model(directory, model, tokenizer))


def spans_job(said: list[str] | None = None, *, epochs: int, batch: int, **settings: Any) -> FineTuneArguments:
    return FineTuneArguments(
        config=TrainConfig(**{"epochs": epochs, "batch": batch, "rate": 0.005, **settings}),
        options=SpansOptions(dropout=0.0),
        callbacks=Callbacks(say=(said if said is not None else []).append),
    )


def random_text(random: np.random.Generator, longest: int) -> str:
    """Fewer than `longest` words."""
    return " ".join(random.choice(PLAIN, size=random.integers(1, longest)))


def texts(labels: list[Any], *, pairs: bool = False, longest: int = 20, kind: Any = "multi-class") -> Dataset[Any]:
    text = functools.partial(random_text, stream(1, "test texts"), longest)

    rows = [TextExample(text(), text() if pairs else None, one, Place("test.tsv", n)) for n, one in enumerate(labels)]
    return Dataset(tuple(rows), "test.tsv", kind=kind)


def draw(labels: Any, count: int) -> list[Any]:
    return [labels[index] for index in stream(2, "test labels").integers(0, len(labels), size=count)]


def sentences(count: int, *, longest: int = 20) -> Dataset[TaggedExample]:
    """Legal BIO at random."""
    random = stream(3, "test sentences")
    rows = []
    for number in range(count):
        tags = ["O"]
        for tag in random.choice(TAGS, size=random.integers(1, longest)).tolist():
            legal = not tag.startswith("I-") or tags[-1][2:] == tag[2:]
            tags.append(tag if legal else f"B-{tag[2:]}")
        words = tuple(random.choice(PLAIN, size=len(tags)).tolist())
        rows.append(TaggedExample(words, tuple(tags), Place("test.conll", number)))
    return Dataset(tuple(rows), "test.conll")


def random_truths(count: int, labels: tuple[str, ...]) -> list[tuple[str, ...]]:
    table = stream(4, "test truths").random((count, len(labels))) < 0.4
    return [tuple(np.array(labels)[row].tolist()) for row in table]
