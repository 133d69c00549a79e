"""SpanBERT at a tiny size, from text to a saved model: both of its losses fall below what word frequencies give."""

import json

import pytest
from rich.console import Console

import larvatus as lv
from larvatus.corpus import build_corpus
from larvatus.recipes import read_recipe
from larvatus.text.embedded import embedded_documents
from larvatus.text.vocabulary import train_vocabulary
from larvatus.train.prepare import Prepared
from larvatus.train.pretrain import Job, train
from larvatus.train.settings import Budget, Runtime

TINY = (
    "model.layers=2",
    "model.hidden=64",
    "model.heads=2",
    "model.max_positions=64",
    "model.init=0.1",  # of so narrow a model: at 0.02 attention takes thousands of steps to wake
    "model.dropout=0.0",
    "model.attention_dropout=0.0",
    "tokenizer.size=1000",
    "batch=64",
    "phases.0.length=32",
    "optimizer.rate=3e-3",
    "schedule.warmup=0.1",
)
STEPS = 340
MARGIN = 0.3
"""Nats below the loss of guessing by frequency: what only the text around a hidden token can give."""


@pytest.fixture(scope="module")
def cased(tmp_path_factory):
    """The embedded text as shards with a cased vocabulary, as the recipe has it."""
    folder = tmp_path_factory.mktemp("cased")
    documents = list(embedded_documents("train"))
    tokenizer = train_vocabulary((d.text for d in documents[:200]), read_recipe("spanbert", settings=TINY).tokenizer)
    assert tokenizer.id("The") is not None
    build_corpus(documents, tokenizer, folder / "train")
    build_corpus(list(embedded_documents("valid")), tokenizer, folder / "valid")
    return Prepared(train=folder / "train", valid=folder / "valid")


def test_both_losses_of_a_tiny_spanbert_fall_below_the_unigram_guess(cased, tmp_path):
    recipe = read_recipe("spanbert", settings=TINY)
    job = Job(recipe=recipe, out=tmp_path / "run", runtime=Runtime(), budget=Budget(steps=STEPS), seed=0)
    held_out = train(job, lambda: cased, Console(quiet=True))[32]
    masked, boundary = held_out.scores["masked-lm"], held_out.scores["span-boundary"]
    assert masked.count == boundary.count > 1_000
    assert masked.loss < held_out.guess_loss - MARGIN
    assert boundary.loss < held_out.guess_loss - MARGIN
    assert min(masked.accuracy, boundary.accuracy) > held_out.guess_accuracy

    assert json.loads((tmp_path / "run" / "config.json").read_text())["model_type"] == "larvatus"
    model = lv.load(tmp_path / "run", device="cpu")
    assert list(model.pretraining.objectives) == ["masked-lm", "span-boundary"]
    assert len(model.fill("The value of the [MASK] is returned.", top=3)) == 3
