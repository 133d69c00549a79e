"""ELECTRA at a tiny size: its generator learns more than frequencies, its detector more than the commoner answer.

Detection is slow to wake: where a token came from shows only in how it goes with its neighbours, and whatever is easy
of that the generator learns too. So pieces here are little more than letters, sequences are short, the second layer
sees only the tokens beside each, and the generator is much narrower than published: then a minute is enough. What is
tested is that the objectives teach, not how well.
"""

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
    "model.heads=4",
    "model.embedding=0",
    "model.max_positions=16",
    "model.local_attention=2",
    "model.global_every=2",
    "model.init=0.2",
    "model.dropout=0.0",
    "model.attention_dropout=0.0",
    "objectives.replaced-tokens.generator=0.06",
    "tokenizer.size=150",
    "batch=64",
    "phases.0.length=16",
    "optimizer.rate=2e-3",
    "optimizer.beta2=0.98",
    "schedule.warmup=0.1",
)
STEPS = 1_000
MASKED_MARGIN = 0.3
"""Nats that the generator's loss must lie below the unigram guess."""
DETECTED_MARGIN = 0.04
"""Nats that the detector's loss must lie below the entropy of its answers; that special tokens stay gains it 0.02."""


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """The embedded text as shards, in the smallest pieces."""
    folder = tmp_path_factory.mktemp("letters")
    documents = list(embedded_documents("train"))
    tokenizer = train_vocabulary((d.text for d in documents), read_recipe("electra", settings=TINY).tokenizer)
    build_corpus(documents, tokenizer, folder / "train")
    build_corpus(list(embedded_documents("valid")), tokenizer, folder / "valid")
    return Prepared(train=folder / "train", valid=folder / "valid")


def test_a_tiny_electra_detects_better_than_the_commoner_answer(letters, tmp_path):
    job = Job(
        recipe=read_recipe("electra", settings=TINY),
        out=tmp_path / "run",
        runtime=Runtime(),
        budget=Budget(steps=STEPS),
        evaluate_every=STEPS,
        save_every=STEPS,
    )
    (held_out,) = train(job, lambda: letters, Console(quiet=True)).values()
    masked, detected = held_out.scores["masked-lm"], held_out.scores["replaced-tokens"]
    assert detected.count == held_out.tokens > 10_000
    assert masked.loss < held_out.guess_loss - MASKED_MARGIN
    assert detected.loss < detected.guess_loss - DETECTED_MARGIN
    assert detected.accuracy > detected.guess_accuracy + 0.003

    model = lv.load(tmp_path / "run", device="cpu")
    assert len(model.fill("The value of the [MASK] is.", top=3)) == 3
