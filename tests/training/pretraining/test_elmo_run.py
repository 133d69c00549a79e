"""ELMo from text to a model: its targets, leaks, microbatches, resuming, two processes, tasks that mix its layers."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.data.corpus import BuildOptions, Corpus, build_corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.text.documents import Document
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.data.text.vocabularies.characters import WORDS, CharactersConfig, Lexicon, NextWords, PreviousWords
from larvatus.interfaces.cli.main import run as run_command
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.recipes import SIZES, read_recipe
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.step import Stepper
from tests import warm

SMALL = (
    "model.layers=2", "model.hidden=16", "model.cells=16", "model.symbol=4", "model.filters=[4, 4, 4]",
    "model.highways=1", "model.clip=0.0", "batch=8", "phases.0.length=64", "optimizer.rate=1e-2",
    "tokenizer.size=900", "objectives.forward-lm.samples=20", "objectives.backward-lm.samples=20",
)  # fmt: skip


def command(*words) -> int:
    with pytest.raises(SystemExit) as ended:
        run_command([str(word) for word in words])
    return int(ended.value.code)


def recipe_of(*settings: str):
    return read_recipe("elmo", settings=[*SMALL, *settings])


def made_up(count: int) -> Iterator[Document]:
    """Sentences of different lengths, of words that agree with their neighbours in how they end."""
    random = np.random.default_rng(1)
    stems, ends = ["list", "file", "read", "line", "naïv", "o", "longish", "b"], ["s", "ed", "er", "ing", "y", "al"]
    for _ in range(count):
        sentences = []
        for _ in range(8):
            words = [random.choice(stems) + random.choice(ends) for _ in range(random.integers(1, 12))]
            sentences.append(f"The {' '.join(words)}.")
        yield Document(text=" ".join(sentences), source="made up", line=1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    documents = list(made_up(60))
    tokenizer = train_vocabulary((document.text for document in documents[:50]), recipe_of().tokenizer)
    build_corpus(documents[:50], tokenizer, folder / "train", BuildOptions(workers=1))
    build_corpus(documents[50:], tokenizer, folder / "valid", BuildOptions(workers=1))
    return PreparedCorpus(train=folder / "train", valid=folder / "valid")


@pytest.fixture
def run_elmo(shards, tmp_path):
    def run(name, *settings, steps=4, **options):
        job = PretrainingJob(recipe=recipe_of(*settings), out=tmp_path / name, budget=Budget(steps=steps), **options)
        return train(job, lambda: shards, Reporter())

    return run


@pytest.fixture(scope="module")
def model(shards, tmp_path_factory):
    """A model of a few steps, to be used."""
    out = tmp_path_factory.mktemp("runs") / "elmo"
    train(PretrainingJob(recipe=recipe_of(), out=out, budget=Budget(steps=3)), lambda: shards, Reporter())
    return out


def steps_of(shards, recipe, *, tokens=512):
    reading = LoaderOptions(from_text=recipe.from_text)
    corpus = Corpus.open(shards.train)
    return Loader(corpus, packing=recipe.packing, length=64, corruption=None, tokens=tokens, seed=1, reading=reading)


def test_targets_are_the_words_beside_each_word_and_no_sentence_meets_another():
    tokenizer = train_vocabulary(
        ["the cat saw the dog . the dog ran . the cat ran ."] * 3, CharactersConfig(size=2_000)
    )
    texts = ["the dog saw it .", "", "ran"]
    batch = TokenBatch.of([tokenizer.template.single.ids(tokenizer.encode(text).ids).tolist() for text in texts])
    lexicon = Lexicon(tokenizer.tokens)
    words = [["<s>", *text.split(), "</s>"] for text in texts]
    known = [[word if tokenizer.id(word) is not None else "<unk>" for word in sentence] for sentence in words]
    after, before = NextWords.of_text(batch, lexicon), PreviousWords.of_text(batch, lexicon)
    assert [tokenizer.tokens[index] for index in after.ids] == [w for sentence in known for w in sentence[1:]]
    assert [tokenizer.tokens[index] for index in before.ids] == [w for sentence in known for w in sentence[:-1]]
    ends = np.cumsum([1 if word[0] == "<" else len(word) for sentence in words for word in sentence])
    last = np.cumsum([len(sentence) for sentence in words]) - 1
    assert after.places.tolist() == np.delete(ends - 1, last).tolist()
    first = last + 1 - [len(sentence) for sentence in words]
    assert before.places.tolist() == np.delete(np.append(0, ends[:-1]), first).tolist()


def test_every_sentence_is_a_sequence_and_every_word_is_predicted_twice(shards):
    recipe = recipe_of()
    batch, _ = next(steps_of(shards, recipe).steps())
    starts = (batch.tokens.ids < 260).sum()
    assert batch.targets[NextWords].count == batch.targets[PreviousWords].count == starts - batch.tokens.count
    assert ((batch.targets[NextWords].ids >= WORDS) | (batch.targets[NextWords].ids < 260)).all()


@pytest.mark.parametrize(("objective", "hidden"), [("forward-lm", "after"), ("backward-lm", "before")])
def test_a_prediction_sees_neither_its_word_nor_what_lies_beyond(shards, objective, hidden):
    """Losses of predictions stay bit-equal when the word to predict, and all beyond, are spelt otherwise."""
    recipe = recipe_of("model.dropout=0.0")
    network = Network.build(recipe.model, recipe.objectives, Corpus.open(shards.train).tokenizer.size, seed=0).eval()
    tokenizer = Corpus.open(shards.train).tokenizer
    sentence = tokenizer.template.single.ids(tokenizer.encode("the list of files is read").ids)
    lexicon, whole = Lexicon(tokenizer.tokens), TokenBatch.of([sentence.tolist()])
    words = lexicon.read(whole)
    place = 3  # "of" speaks for its neighbour
    changed = sentence.copy()
    beyond = slice(words.first[place + 1], -1) if hidden == "after" else slice(1, words.first[place])
    changed[beyond] = np.where(changed[beyond] % 2 == 0, changed[beyond] + 1, changed[beyond] - 1)
    assert (lexicon.read(TokenBatch.of([changed.tolist()])).first == words.first).all()  # other letters, same words
    kind = network.heads[objective].needs
    targets = kind.of_text(whole, lexicon)
    at = np.flatnonzero(np.isin(targets.places, np.arange(words.first[place], words.last[place] + 1)))
    alone = kind(places=targets.places[at], ids=targets.ids[at])

    def loss(ids):
        batch = TrainingBatch(tokens=TokenBatch.of([ids.tolist()]), targets={kind: alone})
        tensors = on_device(batch, "cpu")
        z = network.encoder(tensors.tokens)
        return network.heads[objective].loss(z, tensors, network.encoder).total

    assert torch.equal(loss(sentence), loss(changed))


def test_neither_microbatch_nor_workers_change_a_step(shards):
    recipe = recipe_of("model.dropout=0.0", "objectives.forward-lm.samples=0", "objectives.backward-lm.samples=0")
    size = Corpus.open(shards.train).tokenizer.size
    steppers = []
    for microbatch in (16_384, 150):
        network = Network.build(recipe.model, recipe.objectives, size, seed=0)
        runtime = Runtime(microbatch=microbatch)
        optimizer = adamw(network, recipe.optimizer)
        steppers.append(Stepper(network, optimizer, recipe, runtime=runtime, ranks=Ranks(), seed=1, pad_id=0))
    for step, (batch, _) in zip(range(2), steps_of(shards, recipe).steps(), strict=False):
        a, b = (stepper(batch, step=step, rate=1e-3, limit=64) for stepper in steppers)
        assert a.losses == pytest.approx(b.losses, rel=1e-4)
        assert a.gradient == pytest.approx(b.gradient, rel=1e-3)


def test_a_stopped_run_resumed_ends_bit_equal(run_elmo, tmp_path):
    """With dropout and a sampled softmax: draws hang on the step alone."""
    run_elmo("whole", steps=4)
    run_elmo("parts", steps=4, save_every=2)
    newest = tmp_path / "parts" / "checkpoints" / "step-00000004"
    shutil.rmtree(newest)
    run_elmo("parts", steps=4, resume=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.proof
def test_two_processes_give_the_losses_of_one(shards, tmp_path):
    losses = {}
    exact = ["model.dropout=0.0", "objectives.forward-lm.samples=0", "objectives.backward-lm.samples=0"]
    given = ["larvatus", "pretrain", "elmo", "--corpus", str(shards.train), "--valid", str(shards.valid)]
    sets = itertools.chain(*(("--set", setting) for setting in (*SMALL, *exact)))
    given += ["--steps", "3", "--microbatch", "128", "--device", "cpu", *sets]
    for ranks in (1, 2):
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if ranks == 2 else []
        out = tmp_path / str(ranks)
        done = warm.run(
            [sys.executable, *launch, "-m", *given, "--out", str(out)],
            env={**os.environ, warm.NESTED: "all"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        losses[ranks] = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[1] == pytest.approx(losses[2], rel=1e-5)


def test_a_saved_model_gives_words_their_vectors(model):
    assert json.loads((model / "config.json").read_text())["model_type"] == "larvatus"
    loaded = lv.load(model, device="cpu")
    assert (loaded.encoder.width, loaded.encoder.depth) == (16, 2)
    (words,) = loaded.embed(["The list, read."], unit="word", layers="last")
    (tokens,) = loaded.embed(["The list, read."], unit="token", layers="last")
    assert len(words) == 5
    np.testing.assert_allclose(words[1], tokens[3], rtol=1e-5)  # each character has the vector of its word
    np.testing.assert_allclose(tokens[3], tokens[6], rtol=0)
    assert loaded.embed(["bank", "a longer one"], unit="sentence").shape == (2, 16)


def test_what_elmo_cannot_do_is_one_line_that_names_what_works(model, capsys):
    with pytest.raises(ArtefactError, match=r"no masked-lm head to .*; use a model pretrained with masked-lm"):
        lv.load(model, device="cpu").fill("The [MASK] is read.")
    assert command("fill", "The [MASK] is read.", "--model", model) == 5
    assert "pretrained with masked-lm" in capsys.readouterr().err.replace("\n", " ")
    for setting, says in [
        ('tokenizer.type="wordpiece"', 'set tokenizer.type = "characters"'),
        ("model.hidden=15", "set 16"),
        ("model.cells=8", "set model.cells above that"),
        ("tokenizer.size=300", "set 2000 or more"),
        ("model.filters=[]", "names no filter"),
    ]:
        with pytest.raises(RecipeError, match=says):
            recipe_of(setting)
    with pytest.raises(RecipeError, match=r'set model.type = "elmo"'):
        read_recipe("elmo", settings=['model.type="transformer"'])


def test_every_size_is_sensible():
    sizes = {size: read_recipe("elmo", size=size).model for size in SIZES}
    assert {model.layers for model in sizes.values()} == {2}
    weights = [model.least_weights(0) for model in sizes.values()]
    assert weights == sorted(set(weights))
    published = read_recipe("elmo").model
    assert (published.hidden, published.inner, sum(published.filters)) == (1024, 4096, 2048)
    assert published.least_weights(0) == pytest.approx(93.6e6, rel=2e-3)  # as released, without the softmax


@pytest.mark.parametrize("trained", ["head", "all"])
def test_a_task_learns_and_shows_its_mix_of_layers(model, tmp_path, trained, capsys):
    rows = [("good file", "pos"), ("a fine list", "pos"), ("bad file", "neg"), ("a poor list", "neg")] * 4
    data = tmp_path / "train.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    out = tmp_path / trained
    options = ["--trained", trained, "--epochs", "2", "--rate", "0.05", "--device", "cpu"]
    assert command("finetune", "classify", "--model", model, "--train", data, "--out", out, *options) == 0
    said = capsys.readouterr().out
    assert "by the mean of its tokens" in said
    assert "mix of layers: embeddings 0." in said
    assert "· layer 2 0." in said
    assert "## Mix of layers" in (out / "README.md").read_text()
    assert command("evaluate", out, "--data", data, "--json", "--device", "cpu") == 0
    mix = json.loads(capsys.readouterr().out)["mix"]
    assert sum(mix["shares"]) == pytest.approx(1)
    assert len(mix["shares"]) == 3
    assert mix["shares"] != [1 / 3] * 3
    assert command("evaluate", out, "--data", data, "--device", "cpu") == 0
    assert "mix of layers: embeddings" in capsys.readouterr().out


def test_tagging_over_frozen_layers(model, tmp_path):
    data = tmp_path / "train.conll"
    data.write_text("the D\nold A\nlist N\n\na D\nfile N\n\n" * 5)
    tagger = lv.finetune("tag", lv.load(model, device="cpu"), train=str(data), trained="head", epochs=2)
    assert [word.tag in "DAN" for word in tagger.predict("the old file").words] == [True] * 3
    assert [head.mix for head in tagger.bundle.objectives] == [True]
    plain = lv.finetune("tag", lv.load(model, device="cpu"), train=str(data), trained="head", epochs=1, mix=False)
    assert [head.mix for head in plain.bundle.objectives] == [False]
