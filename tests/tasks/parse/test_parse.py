"""A parser learns the rule of a small treebank; its trees are the same in batches, windows, files and on a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Place
from larvatus.data.labelled.trees import find_cycle, read_trees
from larvatus.data.text.learned_words import learn_words
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads import TaggingConfig
from larvatus.models.heads.parsing import ParsingConfig
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.parse import encode
from larvatus.tasks.parse.encode import SentenceInput, cut_text, encode_sentences, labelled_trees, read_as
from larvatus.tasks.parse.evaluation import TreeValidation, evaluate_trees
from larvatus.tasks.parse.parse import predict_trees
from larvatus.tasks.parse.results import Parsed
from larvatus.tasks.scoring import ScoringOptions
from tests.made_up import Call
from tests.tasks.parse.treebank import treebank
from tests.tasks.test_run import check_resumed

QUICK = ("--epochs", 8, "--batch", 8, "--rate", 0.003, "--device", "cpu")
SMALL = ("--set", "arc_size=24", "--set", "relation_size=12", "--set", "dropout=0")
PLACE = Place("text", 1)


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return treebank(tmp_path_factory.mktemp("gold") / "gold.conllu", 24, seed=7, document=2)


@pytest.fixture(scope="module")
def untrained(tuned: Callable[..., Bundle], gold: Path) -> Bundle:
    data = read_trees(str(gold))
    config = ParsingConfig(
        labels=data.label_names(),
        upos=("DET", "NOUN"),
        feats=("Number=Sing", "_"),
        scripts=("lower|0||0|", "lower|0||30|"),
        rules=learn_words(example.tokens for example in data),
        arc_size=8,
        relation_size=6,
    )
    return tuned(config)


@pytest.fixture(scope="module")
def trained(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    lv.finetune(
        "parse",
        str(tiny_directory),
        train=treebank(folder / "train.conllu", 120),
        dev=treebank(folder / "dev.conllu", 20, seed=1),
        out=folder / "run",
        epochs=6,
        evaluations=1,
        pool="mean",
        batch=8,
        rate=0.003,
        device="cpu",
        arc_size=24,
        relation_size=12,
        dropout=0.0,
    )
    return folder / "run"


def test_the_rule_of_a_treebank_is_learned_saved_and_predicted_from_raw_text(trained: Path) -> None:
    model = lv.load(trained, device="cpu")
    text = "The deep rivers was wide.  the river of the homework was deep."
    doc = model.predict(text)
    assert isinstance(doc, Parsed)
    assert [sentence.text for sentence in doc.sentences] == [text[:25], text[27:]]
    words = doc.words
    assert [(word.text, word.head, word.relation) for word in words[:6]] == [
        ("The", 3, "det"),
        ("deep", 3, "amod"),
        ("rivers", 5, "nsubj"),
        ("was", 5, "cop"),
        ("wide", 0, "root"),
        (".", 5, "punct"),
    ]
    assert (words[2].upos, words[2].lemma, words[2].feats) == ("NOUN", "river", {"Number": "Plur"})
    assert all(text[word.start : word.end] == word.text for word in words)
    second = doc.sentences[1]
    assert second.root.text == "deep"
    head = second.head_of(second.words[4])
    assert head is not None
    assert head.text == "river"
    assert [word.text for word in second.dependents(second.words[1])] == ["the", "homework"]
    assert "nsubj" in str(doc)
    assert len(doc.to_dicts()) == len(words)


def test_evaluation_scores_gold_words_and_raw_text(trained: Path, gold: Path) -> None:
    found = lv.evaluate(str(trained), data=str(gold), device="cpu")
    assert found.metrics["las"].value > 0.9
    assert found.metrics["raw-words"].value > 0.9
    assert set(found.metrics) == {
        f"{raw}{name}" for raw in ("", "raw-") for name in ("las", "uas", "clas", "upos", "ufeats", "lemmas")
    } | {"raw-tokens", "raw-sentences", "raw-words"}
    assert "bootstrap over 12 documents" in str(found)
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_the_run_through_the_commands(trained: Path, larvatus: Call, gold: Path, tmp_path: Path) -> None:
    code, out, err = larvatus("predict", trained, "the river was wide.", "--conllu")
    assert code == 0, err
    rows = [line.split("\t") for line in out.splitlines() if line and not line.startswith("#")]
    assert [row[7] for row in rows] == ["det", "nsubj", "cop", "root", "punct"]
    assert [row[9] for row in rows] == ["_", "_", "_", "SpaceAfter=No", "_"]
    assert larvatus("predict", trained, "the river was wide.", "--format", "conllu")[1] == out
    target = tmp_path / "parsed.conllu"
    assert larvatus("predict", trained, "--file", gold, "--out", target)[0] == 0
    before, after = (path.read_text().split("\n") for path in (gold, target))
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        if not one[:1].isdigit():
            assert one == other
        else:
            cells, rewritten = one.split("\t"), other.split("\t")
            assert [cells[column] for column in (0, 1, 4, 8, 9)] == [rewritten[column] for column in (0, 1, 4, 8, 9)]
    read_trees(str(target))
    raw = tmp_path / "raw.txt"
    raw.write_text("the river was wide. the river was deep.\nthe homework was deep.\n", encoding="utf-8")
    assert larvatus("predict", trained, "--file", raw, "--out", target, "--overwrite")[0] == 0
    assert [example.id for example in read_trees(str(target)).examples] == ["1-1", "1-2", "2-1"]
    code, out, _ = larvatus("predict", trained, "the river was wide.", "--json")
    assert json.loads(out)["sentences"][0]["words"][1]["relation"] == "nsubj"
    code, out, _ = larvatus("data", "check", gold, "--for", "parse")
    assert (code, "24" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--conllu", "--json"), "leave --json out"),
        (("--conllu", "--out", "x.jsonl"), "end --out in .conllu"),
        (("--truncate",), "leave --truncate out"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    trained: Path, larvatus: Call, arguments: tuple[str, ...], says: str
) -> None:
    code, _, err = larvatus("predict", trained, "the river.", *arguments)
    assert (code, says in err, "\n" in err) == (2, True, False), err


def test_other_models_do_not_write_conllu(tuned: Callable[..., Bundle], larvatus: Call) -> None:
    tagger = tuned(TaggingConfig(labels=("A", "B")))
    code, _, err = larvatus("predict", tagger.path, "the river.", "--conllu")
    assert (code, "which .conllu does not hold; leave --conllu out" in err) == (2, True), err


def test_a_run_that_was_stopped_resumes_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = treebank(tmp_path / "train.conllu", 24)
    dev = treebank(tmp_path / "dev.conllu", 6, seed=1)
    command = ("parse", "--train", train, "--dev", dev, *QUICK, "--epochs", 2, *SMALL)
    check_resumed(finetune, *command, at=2, folder=tmp_path, monkeypatch=monkeypatch)


def test_a_bad_tree_stops_training_with_its_line(finetune: Call, tmp_path: Path) -> None:
    path = treebank(tmp_path / "train.conllu", 4)
    lines = path.read_text().split("\n")
    lines[2] = lines[2].replace("\t2\tdet", "\t1\tdet").replace("\t3\tdet", "\t1\tdet")
    path.write_text("\n".join(lines))
    code, _, err = finetune("parse", "--train", path, "--out", tmp_path / "run")
    assert code == 4
    assert f"{path}:3: heads form a cycle (1 → 1)" in err


def test_options_that_cannot_be_are_refused(finetune: Call, tmp_path: Path) -> None:
    path = treebank(tmp_path / "train.conllu", 30)
    for arguments, says in (
        (("--language", "english!"), "is no language code"),
        (("--metric", "entity-f1"), "--metric entity-f1 does not score this task"),
        (("--truncate",), "leave --truncate out"),
    ):
        code, _, err = finetune("parse", "--train", path, "--dev", path, "--out", tmp_path / "run", *arguments)
        assert (code, says in err) == (2, True), err
    bare = tmp_path / "bare.conllu"
    bare.write_text("\n".join(["1\tw\t_\t_\t_\t_\t0\troot\t_\t_", "", ""]) * 30, encoding="utf-8")
    code, _, err = finetune("parse", "--train", bare, "--dev", bare, "--out", tmp_path / "run", "--upos")
    assert (code, "no word has upos" in err) == (4, True), err


def sentences_of(path: Path) -> list[SentenceInput]:
    return [SentenceInput.of_tree(example) for example in read_trees(str(path)).examples]


@settings(max_examples=10)
@given(tokens=st.integers(20, 300), limit=st.integers(10, 32))
def test_batches_and_windows_change_no_tree(untrained: Bundle, gold: Path, tokens: int, limit: int) -> None:
    inputs = sentences_of(gold)
    encoded = encode_sentences(untrained.tokenizer, inputs, WindowOptions(limit=limit))
    trees = predict_trees(untrained.network, encoded, ScoringOptions(tokens=tokens))
    place = 0
    for number, sentence in enumerate(inputs):
        alone = encode_sentences(untrained.tokenizer, [sentence], WindowOptions(limit=limit))
        one = predict_trees(untrained.network, alone, ScoringOptions())
        size = len(sentence.words)
        assert encoded.sizes[number] == size
        heads = trees.heads[place : place + size]
        assert (heads == 0).sum() == 1
        assert find_cycle(heads.tolist()) is None
        np.testing.assert_allclose(one.probabilities, trees.probabilities[place : place + size], atol=1e-5)
        place += size


def test_a_sentence_longer_than_a_window_is_one_tree_and_trains(untrained: Bundle, gold: Path) -> None:
    examples = read_trees(str(gold)).examples
    config = untrained.objectives[0]
    data = labelled_trees(untrained, examples, config, WindowOptions(limit=10))
    assert data.sequences.parts.max() > 1
    batch = data.batch(np.arange(len(data)))
    parts = list(batch.split(40))
    assert len(parts) > 1
    kind = config.needs
    assert sum((part.targets[kind].sizes for part in parts), ()) == batch.targets[kind].sizes
    heads = np.concatenate([part.targets[kind].heads for part in parts])
    assert heads.tolist() == [head for example in examples for head in example.heads or ()]
    whole = predict_trees(untrained.network, data.encoded, ScoringOptions(), data)
    split = [
        predict_trees(untrained.network, one.encoded, ScoringOptions(), one).loss
        for one in (labelled_trees(untrained, [each], config, WindowOptions(limit=10)) for each in examples)
    ]
    assert whole.loss == pytest.approx(sum(split), rel=1e-5)


def test_validation_and_evaluation_agree(untrained: Bundle, gold: Path) -> None:
    data = read_trees(str(gold))
    config = untrained.objectives[0]
    labelled = labelled_trees(untrained, data.examples, config, WindowOptions(limit=32))
    scores = TreeValidation(labelled, data.examples, config, "las").scores(untrained.network, ScoringOptions())
    found = evaluate_trees(untrained, data, EvaluationOptions(samples=20))
    for name, value in scores.values.items():
        assert found.metrics[name].value == pytest.approx(value)
    same = compare_evaluations(found, found)
    assert same.metrics["raw-las"].difference == 0


def test_a_sentence_of_very_many_words_is_parsed_in_parts_and_says_so(
    untrained: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "LONGEST", 10)
    monkeypatch.setattr(encode, "PART", 5)
    config = untrained.objectives[0]
    text = "the river " * 12
    inputs, notes = cut_text(text, config, PLACE)
    assert [len(sentence.words) for sentence in inputs] == [5, 5, 5, 5, 4]
    assert notes == (
        "a sentence of 24 words (characters 0 to 119) is longer than 10 words and was parsed in 5 parts of up to 5",
    )
    assert len(cut_text("the river " * 5, config, PLACE)[0]) == 1
    words = lv.load(untrained.path, device="cpu")
    assert words.predict(text).notes == notes
    with pytest.raises(DataError, match="a sentence of 11 words; a tree has up to 10, so split it"):
        words.predict([["river"] * 11])
    with pytest.raises(UsageError, match="leave --truncate out"):
        words.predict(text, truncate=True)


@settings(max_examples=25)
@given(text=st.text(alphabet="the river.,'\n \u00e9(\u5c71\u0301", max_size=80))
def test_raw_text_of_any_kind_has_words_with_their_characters(untrained: Bundle, text: str) -> None:
    inputs, _ = cut_text(text, untrained.objectives[0], PLACE)
    covered = "".join(token.form for sentence in inputs for token in sentence.tokens)
    assert covered == "".join(text.split())
    for sentence in inputs:
        assert text[sentence.start : sentence.end] == sentence.text
        read, spans = read_as(sentence.tokens)
        assert [read[start:end] for start, end in spans] == list(sentence.words)
    encoded = encode_sentences(untrained.tokenizer, inputs, WindowOptions(limit=16))
    assert predict_trees(untrained.network, encoded, ScoringOptions()).heads.shape == (encoded.sizes.sum(),)


def test_saved_and_loaded_heads_are_equal(trained: Path) -> None:
    first, second = (load_bundle(trained) for _ in range(2))
    assert first.objectives == second.objectives
    rules = first.objectives[0].rules
    assert [token.form for token in rules.tokens("the river was wide.")] == ["the", "river", "was", "wide", "."]


def test_the_server_parses(trained: Path) -> None:
    model = lv.load(trained, device="cpu")
    with TestClient(build_app([model], ServeSettings()), base_url="http://127.0.0.1") as client:
        texts = ["the river was wide.", ["the", "river", "was", "deep", "."]]
        answer = client.post("/v1/parse", json={"texts": texts})
        assert answer.status_code == 200, answer.text
        for result, text in zip(answer.json()["results"], texts, strict=True):
            expected = model.predict([text])[0].to_dict()
            for one, other in zip(result["sentences"][0]["words"], expected["sentences"][0]["words"], strict=True):
                assert one.pop("probability") == pytest.approx(other.pop("probability"), abs=1e-5)
                assert one == other
        assert client.post("/v1/parse", json={"texts": "the river", "truncate": True}).status_code == 422
