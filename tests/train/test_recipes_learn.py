"""Every recipe learns: small, on one core and real prose, its masked loss falls below what frequencies alone give.

Each states its margin, in nats on held-out text. Knowing the frequencies better (those of the corpus, not of the text
that the vocabulary was learnt from) would gain 0.05, so a margin beyond that comes from the context.
Another recipe is another line in `LEARNS`.
"""

from dataclasses import dataclass

import pytest
from rich.console import Console

from larvatus.bundle.directory import load_bundle
from larvatus.corpus import build_corpus
from larvatus.recipes import read_recipe
from larvatus.text.embedded import embedded_documents
from larvatus.text.vocabulary import train_vocabulary
from larvatus.train.prepare import Prepared
from larvatus.train.pretrain import Job, train
from larvatus.train.settings import Budget

SMALL = (
    "model.layers=2",
    "model.hidden=64",
    "model.heads=2",
    "model.init=0.1",  # of the order of 1/√hidden; 0.02 is made for 768
    "model.dropout=0.0",
    "model.attention_dropout=0.0",
    "tokenizer.size=1000",
    "batch=32",
    "phases.0.length=64",
    "optimizer.rate=4e-3",
)


@dataclass(frozen=True)
class Learns:
    steps: int
    margin: float
    """Nats that the held-out masked loss must lie below the unigram guess."""
    settings: tuple[str, ...] = ()
    """Besides the small ones, which they overrule."""


LEARNS = {
    "roberta": Learns(steps=500, margin=0.3),
    "xlm-r": Learns(steps=500, margin=0.3),
}


@pytest.fixture
def prepare(tmp_path):
    """The embedded text as shards, with the recipe's own kind of vocabulary."""

    def build(recipe):
        documents = list(embedded_documents("train"))
        tokenizer = train_vocabulary((document.text for document in documents), recipe.tokenizer)
        build_corpus(documents, tokenizer, tmp_path / "train")
        build_corpus(embedded_documents("valid"), tokenizer, tmp_path / "valid")
        return Prepared(train=tmp_path / "train", valid=tmp_path / "valid")

    return build


@pytest.mark.parametrize("name", LEARNS)
def test_a_recipe_learns_more_than_frequencies(name, prepare, tmp_path):
    wanted = LEARNS[name]
    recipe = read_recipe(name, settings=[*SMALL, *wanted.settings])
    job = Job(
        recipe=recipe,
        out=tmp_path / "run",
        budget=Budget(steps=wanted.steps),
        evaluate_every=wanted.steps,
        save_every=wanted.steps,
    )
    results = train(job, lambda: prepare(recipe), Console(quiet=True))
    (result,) = results.values()
    assert result.scores["masked-lm"].loss < result.guess_loss - wanted.margin
    assert load_bundle(tmp_path / "run").model == recipe.model
