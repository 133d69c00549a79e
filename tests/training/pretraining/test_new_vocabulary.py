"""A model in another vocabulary: its rows, its stages, what it keeps of the old domain, and resuming in each stage."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corpus.mixture import REPLAYED, MixtureConfig
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import Document, ReadOptions
from larvatus.data.text.shared_tokens import shared_tokens
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import UnigramConfig, pipeline, train_vocabulary
from larvatus.interfaces.api.pretraining import _old_text
from larvatus.interfaces.settings import PretrainSettings
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.adapt import ParentVocabulary, read_extension
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.new_vocabulary import NewVocabulary, read_dictionary, read_rows
from larvatus.training.pretraining.replay import ReplayText
from larvatus.training.pretraining.retention import EmbeddingStage, StartPull
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.text_record import record_vocabulary
from tests.shared import SMALL
from tests.training.pretraining.stopping import stop_after_saving

NOUNS = ["boka", "lumi", "tavo", "siruk", "melan", "dorit"]
VERBS = ["kamo", "rilta", "pesuna"]
WORDS = "encoder.embeddings.words.weight"
SETTINGS = {"tokenizer.size": 160, "batch": 8, "phases.0.length": 32, "phases.1.length": 32}


@pytest.fixture(scope="module")
def parent(prepared, tmp_path_factory):
    """A small model of English."""
    out = tmp_path_factory.mktemp("parent") / "run"
    job = PretrainingJob(
        recipe=read_recipe("bert", settings=SMALL), out=out, budget=Budget(steps=3), evaluate_every=100, save_every=12
    )
    train(job, lambda: prepared, Reporter())
    return out


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Text of a made-up language, some of the parent's, and word pairs."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    lines = [f"{draw.choice(NOUNS)} {draw.choice(VERBS)} ne {draw.choice(NOUNS)}." for _ in range(360)]
    (folder / "new.txt").write_text("\n\n".join("\n".join(lines[n : n + 6]) for n in range(0, 360, 6)))
    old = [document.text.replace("\n", " ")[:400] for document in itertools.islice(embedded_documents("train"), 60)]
    (folder / "old.txt").write_text("\n\n".join(old))
    return folder


@pytest.fixture
def adapt(parent, texts, tmp_path):
    """adapt("name", steps=4, initialise="mean"): pretrain from the parent with a new vocabulary."""

    def run(name, *, steps=2, settings=(), corpus=None, **options):
        given = {"vocabulary": "new", "evaluate_every": 100, **options}
        return lv.pretrain(
            corpus=corpus or texts / "new.txt",
            out=tmp_path / name,
            start=parent,
            steps=steps,
            quiet=True,
            settings={**SETTINGS, **dict(settings)},
            **given,
        )

    return run


def records(out, kind):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in ("time", "tokens/s")} for line in lines if line["kind"] == kind]


def weights(out):
    return load_file(out / "model.safetensors")


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_new_vocabulary_is_learned_and_its_rows_are_made_from_the_old(parent, texts, adapt, tmp_path, capsys):
    adapt("run", old=texts / "old.txt")
    out, old = tmp_path / "run", load_bundle(parent)
    new = load_bundle(out)
    assert new.tokenizer.kind == old.tokenizer.kind == "wordpiece"
    assert new.tokenizer.size < old.tokenizer.size
    summary = new.lineage["parent"]["new vocabulary"]
    assert summary["tokens per word"] < summary["tokens per word before"]
    assert sum(summary["rows"].values()) == new.tokenizer.size
    assert summary["rows"]["mixed"] > 0
    started = ParentModel.load(parent, out=tmp_path).start(old_recipe(out), seed=0, rows=read_rows(out)).model
    before, after = old.network.state_dict(), started.state_dict()
    shared = shared_tokens(new.tokenizer, old.tokenizer)
    assert (shared >= 0).sum() == summary["rows"]["copied"]
    for name in (WORDS, "objectives.masked-lm.bias"):
        for number in np.flatnonzero(shared >= 0).tolist():
            assert torch.equal(after[name][number], before[name][shared[number]])
    assert all(torch.equal(after[name], before[name]) for name in before if len(after[name]) != new.tokenizer.size)
    rows = {row["domain"]: row for row in records(out, "domain") if row["objective"] == "masked-lm"}
    for domain in ("new", "old"):
        assert rows[domain]["nats a word before"] > 0
        assert rows[domain]["nats a word after"] > 0
    assert "new vocabulary" in json.loads((out / "larvatus.json").read_text())["lineage"]["parent"]


def old_recipe(out):
    return read_recipe("bert", settings=[*SMALL, f"tokenizer.size={load_bundle(out).tokenizer.size}"])


def test_a_tokenizer_of_another_kind_from_a_directory(parent, texts, adapt, tmp_path):
    lines = (texts / "new.txt").read_text().split("\n\n")
    train_vocabulary(lines, UnigramConfig(size=30)).save(tmp_path / "unigram")
    model = adapt("run", vocabulary=tmp_path / "unigram", initialise="mean", settings={"tokenizer.size": 30})
    assert model.tokenizer.tokens == Tokenizer.load(tmp_path / "unigram").tokens
    assert load_bundle(tmp_path / "run").lineage["parent"]["new vocabulary"]["initialise"] == "mean"
    assert model.fill("boka <mask> ne lumi.")
    with pytest.raises(UsageError, match=r"tokenizer\.size = 160 contradicts"):
        adapt("other", vocabulary=tmp_path / "unigram")


@pytest.mark.parametrize(("initialise", "given"), [("copy", "random"), ("random", "random")])
def test_what_is_not_copied_is_random(adapt, tmp_path, initialise, given):
    adapt("run", initialise=initialise, steps=1)
    rows = load_bundle(tmp_path / "run").lineage["parent"]["new vocabulary"]["rows"]
    assert rows["mixed"] == rows["mean"] == 0
    assert rows[given] > 0
    assert (rows["copied"] == 5) == (initialise == "random")  # the special tokens


def test_wechsel_aligns_the_languages_by_a_dictionary(texts, adapt, tmp_path):
    lines = (texts / "old.txt").read_text().lower().split()
    common = [word for word in dict.fromkeys(lines) if word.isalpha() and lines.count(word) > 3][:40]
    pairs = [f"{new}\t{old}" for new, old in zip(itertools.cycle([*NOUNS, *VERBS]), common, strict=False)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    options = {"initialise": "wechsel", "replay_text": texts / "old.txt", "steps": 1}
    adapt("run", dictionary=tmp_path / "pairs.tsv", **options)
    rows = load_bundle(tmp_path / "run").lineage["parent"]["new vocabulary"]["rows"]
    assert rows["mixed"] > 5
    (tmp_path / "few.tsv").write_text("\n".join(pairs[:3]))
    with pytest.raises(DataError, match=r"only 3 pairs have words of both texts"):
        adapt("few", dictionary=tmp_path / "few.tsv", **options)
    (tmp_path / "bad.tsv").write_text("boka boat\n")
    with pytest.raises(DataError, match=r"bad\.tsv:1: .* is no pair"):
        read_dictionary(tmp_path / "bad.tsv")


def test_the_first_stage_trains_only_rows_of_tokens(parent, texts, adapt, tmp_path):
    """With all steps in it, every other weight is the parent's to the bit, and both row tensors have moved."""
    adapt("run", steps=3, embedding_share=1.0)
    after, before = load_bundle(tmp_path / "run").network.state_dict(), load_bundle(parent).network.state_dict()
    rows = read_rows(tmp_path / "run")
    for name, tensor in after.items():
        same = len(tensor) != rows.size
        start = before[name] if same else rows.apply(before[name], name=name.rpartition("encoder.")[2], seed=0)
        assert torch.equal(tensor, start) == same, name


STAGES = {"embedding_share": 0.5, "save_every": 1, "steps": 6, "stay": 1.0, "replay": 0.3}


@pytest.mark.parametrize(
    "killed", [pytest.param(1, marks=pytest.mark.proof), 3, pytest.param(4, marks=pytest.mark.proof)]
)
def test_a_run_killed_in_either_stage_resumes_to_the_same_bits(texts, adapt, tmp_path, monkeypatch, killed):
    """Three steps of embeddings, then three of all weights: killed in the first, between them, and in the second."""
    options = {**STAGES, "replay_text": texts / "old.txt"}
    adapt("whole", **options)
    with monkeypatch.context() as patched:
        stop_after_saving(patched, killed)
        with pytest.raises(KeyboardInterrupt):
            adapt("cut", **options)
    adapt("cut", **options, resume=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    assert records(tmp_path / "whole", "domain") == records(tmp_path / "cut", "domain")
    assert records(tmp_path / "whole", "domain")[-1]["domain"] == "old"


@pytest.mark.proof
@pytest.mark.parametrize(("change", "name"), [({"stay": 2.0}, "stay"), ({"embedding_share": 0.3}, "embedding share")])
def test_a_resume_with_other_stages_is_refused(texts, adapt, tmp_path, monkeypatch, change, name):
    options = {**STAGES, "replay_text": texts / "old.txt"}
    with monkeypatch.context() as patched:
        stop_after_saving(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            adapt("run", **options)
    with pytest.raises(lv.LarvatusError, match=name):
        adapt("run", **{**options, **change}, resume=True)


def test_replayed_text_has_its_share_of_the_tokens(texts, adapt, tmp_path):
    """Counted in the batches of the loader, and kept out of validation text."""
    adapt("run", replay=0.25, replay_text=texts / "old.txt", vocabulary=None, settings={"tokenizer.size": 1200})
    corpus, out = Corpus.open(tmp_path / "run" / "corpus" / "train"), tmp_path / "run"
    assert set(corpus.manifest.languages) == {"en", REPLAYED}
    assert REPLAYED not in Corpus.open(out / "corpus" / "valid").manifest.languages
    assert set(Corpus.open(out / "corpus" / "old").manifest.languages) == {REPLAYED}
    recipe = read_recipe("bert", settings=SMALL)
    loader = Loader(
        corpus,
        packing=recipe.packing,
        length=32,
        corruption=None,
        tokens=2048,
        seed=0,
        reading=LoaderOptions(mixture=MixtureConfig(replay=0.25)),
    )
    loader.block_tokens = 1 << 14
    parts = [part for block in loader.plan(0) for part in block]
    tokens = dict.fromkeys(corpus.manifest.languages, 0)
    for part in parts:
        tokens[corpus.chunks[part.chunk].language] += part.last - part.first
    assert tokens[REPLAYED] / sum(tokens.values()) == pytest.approx(0.25, abs=0.01)
    assert tokens["en"] == corpus.manifest.languages["en"].tokens


def test_replayed_text_is_split_from_what_measures_the_old_domain(texts):
    replay = ReplayText(str(texts / "old.txt"), ReadOptions())
    trained = [document.text for document in replay.training(length=32)]
    held = [document.text for document in replay.held_out(length=32)]
    assert held
    assert not set(held) & set(trained)
    assert {document.language for document in replay.held_out(length=32)} == {REPLAYED}


def test_the_pull_by_loops():
    start, gradient = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.25])
    weight = torch.nn.Parameter(start.clone())
    pull = StartPull({"w": weight}, 4.0)
    naive = start.tolist()
    for _ in range(5):
        with torch.no_grad():
            weight -= 0.1 * gradient
        pull(0.05, torch.tensor(0.0))
        for place in range(2):
            naive[place] -= 0.1 * gradient[place].item()
            naive[place] -= 0.05 * 4.0 * (naive[place] - start[place].item())
    assert weight.tolist() == pytest.approx(naive, rel=1e-6)
    moved = weight.detach().clone()
    pull(0.05, torch.tensor(1.0))  # a number was not finite
    assert torch.equal(weight, moved)
    pull(1.0, torch.tensor(0.0))  # never beyond the start
    assert torch.allclose(weight, start)


def test_the_second_stage_begins_with_a_new_optimizer_and_a_warm_up():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    stage = EmbeddingStage(model, optimizer, names={"0.weight"}, steps=2, warmup=4)
    rates = []
    for step in range(8):
        rates.append(stage.enter(step, 1.0))
        assert model[0].weight.requires_grad
        assert model[1].weight.requires_grad == (step >= 2)
        assert len(optimizer.state) == (0 if step in (0, 2) else 1 if step < 2 else 4)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert rates == [1.0, 1.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [stage.optimizer_steps(step) for step in (0, 1, 2, 3)] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_words": ["3"]}, "--add-words extends the old vocabulary"),
        ({"initialise": "wechsel"}, "give --dictionary FILE and --replay-text FILE"),
        ({"dictionary": "pairs.tsv"}, "--dictionary goes with --initialise wechsel"),
        ({"vocabulary": None, "embedding_share": 0.5}, "--embedding-share is about the tokens of another vocabulary"),
        ({"vocabulary": "grow", "initialise": "mean"}, "--initialise is about the tokens of another vocabulary"),
        ({"replay": 0.1}, "--replay mixes in text of the old domain, which a model does not carry"),
        ({"replay_text": "old.txt"}, "--replay-text is for --replay"),
        ({"replay": 0.1, "replay_text": "-"}, "--replay-text reads files, not standard input"),
        ({"replay": 1.0, "replay_text": "old.txt"}, "replay"),
        ({"settings": {"mixture.replay": 0.1}}, "mixture.replay is the share of text that must be named"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_the_fix(adapt, options, message):
    with pytest.raises(UsageError, match=message):
        adapt("run", **options)


def test_the_packaged_model_is_measured_on_text_that_every_python_has():
    settings = [
        ({"start": "english", "vocabulary": "new"}, "embedded"),
        ({"start": "english", "stay": 1.0}, "embedded"),
        ({"start": "english", "vocabulary": "new", "old": "wiki.txt"}, "wiki.txt"),
        ({"start": "english", "stay": 1.0, "replay": 0.1, "replay_text": "wiki.txt"}, None),  # its held-out part
        ({"start": "other", "vocabulary": "new"}, None),
        ({"start": "english"}, None),
    ]
    for given, old in settings:
        assert _old_text(PretrainSettings(**given)) == old


def test_without_a_model_there_is_nothing_to_adapt(texts, tmp_path):
    for options in ({"vocabulary": "new"}, {"initialise": "mean"}, {"replay": 0.1}, {"stay": 1.0}):
        with pytest.raises(UsageError, match="goes with --from DIR"):
            lv.pretrain("bert", corpus=texts / "new.txt", out=tmp_path / "run", quiet=True, **options)


def test_a_built_corpus_is_refused(adapt, prepared):
    with pytest.raises(UsageError, match="is built already; --vocabulary needs the text itself"):
        adapt("run", corpus=prepared.train)


def test_growing_adds_words_without_being_told_which(adapt, parent, tmp_path):
    model = adapt("run", vocabulary="grow", settings={"tokenizer.size": 1200}, steps=1)
    old = load_bundle(parent).tokenizer
    assert model.tokenizer.tokens[: old.size] == old.tokens
    assert len(model.tokenizer.encode("siruk").ids) == 1


def test_rows_of_an_earlier_attempt_are_not_taken(parent, texts, tmp_path):
    """A run that was killed before its first shard may begin again with other options."""
    origin = ParentModel.load(parent, out=tmp_path / "run")
    recipe = read_recipe("bert", settings=[*SMALL, "tokenizer.size=160"])
    folder = tmp_path / "run" / "vocabulary"

    def documents():
        return [Document(part, "new.txt") for part in (texts / "new.txt").read_text().split("\n\n")]

    for source, replaced in (
        (NewVocabulary(origin=origin, recipe=recipe, initialise="mean"), True),
        (ParentVocabulary(origin, ["3"]), False),
        (NewVocabulary(origin=origin, recipe=recipe, initialise="copy"), True),
    ):
        source.make(documents, folder, Reporter())
        record_vocabulary(folder, source.identity)
        assert (read_rows(tmp_path / "run") is not None) == replaced
        assert (read_extension(tmp_path / "run")[1] == []) == replaced
        assert source.before(folder).tokens == origin.bundle.tokenizer.tokens


def test_words_of_replayed_text_count_in_their_share(parent, texts, tmp_path):
    """So that they have tokens: a quarter of the counted words are of the old text, in the proportions it has."""
    origin, replay = ParentModel.load(parent, out=tmp_path / "run"), ReplayText(str(texts / "old.txt"), ReadOptions())
    documents = [Document(part, "new.txt") for part in (texts / "new.txt").read_text().split("\n\n")]
    counted = {}
    for share in (None, 0.25):
        settings = [*SMALL, *([] if share is None else [f"mixture.replay={share}"])]
        recipe = read_recipe("bert", settings=settings)
        source = NewVocabulary(origin=origin, recipe=recipe, replay=replay)
        counted[share] = dict(source._words(lambda: documents, pipeline(recipe.tokenizer)))
    new, both = sum(counted[None].values()), sum(counted[0.25].values())
    assert 1 - new / both == pytest.approx(0.25, abs=0.001)
    old = Counter(word for document in replay.training(length=512) for word in document.text.lower().split())
    added = {word: both - counted[None].get(word, 0) for word, both in counted[0.25].items()}
    assert added["the"] / added["of"] == pytest.approx(old["the"] / old["of"], rel=0.1)


def test_the_identity_names_what_decides_the_rows(parent, tmp_path):
    origin = ParentModel.load(parent, out=tmp_path / "run")
    recipe = read_recipe("bert", settings=SMALL)
    identities = [
        NewVocabulary(origin=origin, recipe=recipe, initialise=name, seed=seed).identity
        for name, seed in (("focus", 0), ("mean", 0), ("focus", 1))
    ]
    assert len({json.dumps(each, sort_keys=True) for each in identities}) == 3
    assert Path(origin.path) == parent
