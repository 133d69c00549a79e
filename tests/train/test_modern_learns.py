"""`modern` at a small size learns real prose: it predicts hidden tokens better than unigram counts do."""

import itertools
import json

import numpy as np
import pytest
from rich.console import Console

import larvatus
from larvatus.corpus import Corpus, build_corpus
from larvatus.recipes import read_recipe
from larvatus.text.embedded import embedded_documents
from larvatus.text.vocabulary import ByteBPEConfig, train_vocabulary
from larvatus.train.evaluation import UnigramGuess
from larvatus.train.prepare import Prepared
from larvatus.train.pretrain import Job, train
from larvatus.train.settings import Budget, Runtime

SMALL = [
    "tokenizer.size=1000",
    "model.layers=3",
    "model.hidden=64",
    "model.heads=4",
    "model.max_positions=64",
    "model.local_attention=16",
    "model.init=0.1",  # so narrow a model needs larger weights than one of 768
    "phases.0.length=64",
    "batch=32",
    "optimizer.rate=2e-3",
]
STEPS = 330
MARGIN = 0.4  # nats below the unigram guess; 0.74 when this was written


@pytest.fixture
def bytes_prepared(tmp_path):
    documents = list(itertools.islice(embedded_documents("train"), 170))
    tokenizer = train_vocabulary((d.text for d in documents[:150]), ByteBPEConfig(size=1000))
    build_corpus(documents[:150], tokenizer, tmp_path / "train")
    build_corpus(documents[150:], tokenizer, tmp_path / "valid")
    return Prepared(train=tmp_path / "train", valid=tmp_path / "valid")


def unigram_loss(prepared):
    """Of the held-out tokens, from how often each stands in the training shards."""
    train, valid = (Corpus.open(path) for path in (prepared.train, prepared.valid))
    ids = train.block(range(len(train.chunks))).ids
    guess = UnigramGuess(np.bincount(ids, minlength=train.tokenizer.size))
    guess.see(valid.block(range(len(valid.chunks))).ids)
    return guess.loss


def test_modern_learns_and_its_directory_fills_blanks(bytes_prepared, tmp_path):
    out = tmp_path / "run"
    job = Job(recipe=read_recipe("modern", settings=SMALL), out=out, runtime=Runtime(), budget=Budget(steps=STEPS))
    held_out = train(job, lambda: bytes_prepared, Console(quiet=True))[64]
    loss = held_out.scores["masked-lm"].loss
    assert loss < held_out.guess_loss - MARGIN
    assert loss < unigram_loss(bytes_prepared) - MARGIN
    assert json.loads((out / "config.json").read_text())["model_type"] == "modernbert"
    model = larvatus.load(out)
    assert len(model.fill(f"the name of the {model.tokenizer.special.mask}", top=5)) == 5
