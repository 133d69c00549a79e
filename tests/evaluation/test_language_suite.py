"""Minimal pairs made from a treebank, and the suite that judges a model in the language of one."""

from __future__ import annotations

from collections import Counter

import pytest

import larvatus as lv
from larvatus.data.labelled.trees import read_trees
from larvatus.evaluation.suite.tree_pairs import FormLexicon, agreement_rules, kappa, tree_pairs
from larvatus.metrics.accuracy import clustered_interval, wilson

SINGULAR = [("the", "the", "DET", "_"), ("key", "key", "NOUN", "Number=Sing"), ("opens", "open", "VERB", "Number=Sing")]
PLURAL = [("the", "the", "DET", "_"), ("keys", "key", "NOUN", "Number=Plur"), ("open", "open", "VERB", "Number=Plur")]
SHEEP = [("sheep", "sheep", "NOUN", "Number=Sing"), ("ran", "run", "VERB", "Tense=Past")]
FLOCK = [("Sheep", "sheep", "NOUN", "Number=Plur"), ("run", "run", "VERB", "Tense=Pres")]
HEADS = {3: [(2, "det"), (3, "nsubj"), (0, "root")], 2: [(2, "nsubj"), (0, "root")]}


def conllu(sentences):
    blocks = []
    for number, words in enumerate(sentences):
        rows = [
            "\t".join([str(place), form, lemma, upos, "_", feats, str(head), relation, "_", "_"])
            for place, ((form, lemma, upos, feats), (head, relation)) in enumerate(
                zip(words, HEADS[len(words)], strict=True), start=1
            )
        ]
        text = " ".join(form for form, *_ in words)
        blocks.append("\n".join([f"# sent_id = {number}", f"# text = {text}", *rows]))
    return "\n\n".join(blocks) + "\n\n"


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("trees") / "train.conllu"
    path.write_text(conllu([SINGULAR, PLURAL] * 20 + [SHEEP, FLOCK] * 4), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trees(treebank):
    return read_trees([str(treebank)]).examples


def test_rules_are_relations_that_agree_beyond_chance(trees):
    assert agreement_rules(trees) == {("Number", "nsubj", "NOUN", "VERB")}
    assert kappa({("Sing", "Sing"): 10, ("Plur", "Plur"): 10, ("Sing", "Plur"): 10, ("Plur", "Sing"): 10}) == 0
    assert kappa({("Sing", "Sing"): 40}) == 0  # one value only: nothing is known of agreement


def test_relations_without_agreement_give_no_agreement_pairs(tmp_path):
    path = tmp_path / "mixed.conllu"
    mixed = [SINGULAR, PLURAL, [*SINGULAR[:2], PLURAL[2]], [*PLURAL[:2], SINGULAR[2]]]
    path.write_text(conllu(mixed * 10), encoding="utf-8")
    examples = read_trees([str(path)]).examples
    assert agreement_rules(examples) == frozenset()
    assert tree_pairs(examples, FormLexicon.of(examples), agreement_rules(examples)) == []


def test_a_pair_differs_in_one_attested_form(trees):
    pairs = tree_pairs(trees, FormLexicon.of(trees), agreement_rules(trees))
    number = {(each.pair.good, each.pair.bad) for each in pairs if each.pair.groups["linguistics_term"] != "tense form"}
    assert number == {
        ("the key opens", "the keys opens"),
        ("the key opens", "the key open"),
        ("the keys open", "the key open"),
        ("the keys open", "the keys opens"),
    }
    forms = {(each.pair.good, each.pair.bad) for each in pairs if each.pair.groups["linguistics_term"] == "tense form"}
    assert forms == {("sheep ran", "sheep run"), ("Sheep run", "Sheep ran")}  # sheep itself has no other form
    for each in pairs:
        start, (good, bad) = each.start, each.lengths
        assert each.pair.good[start : start + good].lower() == each.good
        assert each.pair.bad[start : start + bad].lower() == each.bad
        assert each.pair.good[start + good :] == each.pair.bad[start + bad :]
        masked = each.passage(good=False)
        begin, end = masked.words[masked.hidden[0]]
        assert masked.text[begin:end].lower() == each.bad


def test_a_sample_of_pairs_is_always_the_same_part_of_them(trees):
    everything = tree_pairs(trees, FormLexicon.of(trees), agreement_rules(trees))
    some = tree_pairs(trees, FormLexicon.of(trees), agreement_rules(trees), most=5)
    assert some == tree_pairs(trees, FormLexicon.of(trees), agreement_rules(trees), most=5)
    assert Counter(each.pair.groups["linguistics_term"] for each in some) == {"number agreement": 5, "tense form": 5}
    assert [each for each in everything if each in some]


@pytest.mark.parametrize(
    ("word", "first", "expected"),
    [("The", True, "A"), ("I", False, "me"), ("Haus", False, "Baum"), ("der", False, "a")],
)
def test_a_form_is_spelled_as_within_sentences_unless_it_begins_one(word, first, expected):
    lexicon = FormLexicon({}, {"a": Counter({"a": 3}), "me": Counter({"me": 2, "Me": 1})})
    assert lexicon.spelled(expected.lower(), word, first=first) == expected


def test_answers_of_one_sentence_widen_the_interval():
    right = [1.0, 1.0, 0.0, 1.0] * 10
    alone = clustered_interval(right, list(range(40)))
    assert alone == pytest.approx(wilson(30, 40))
    doubled = clustered_interval([value for value in right for _ in range(2)], [k // 2 for k in range(80)])
    assert doubled == pytest.approx(alone)


@pytest.fixture(scope="module")
def results(treebank, tiny_model, save_tiny, tmp_path_factory):
    home = tmp_path_factory.mktemp("language")
    text = home / "held_out.txt"
    text.write_text("\n\n".join(["the key opens . the keys open . the sheep ran ."] * 30), encoding="utf-8")
    model = save_tiny(home / "model", tiny_model())
    settings = {
        "treebank": [treebank, treebank],
        "corpus": str(text),
        "device": "cpu",
        "quiet": True,
        "epochs": 2,
        "seeds": 1,
    }
    return lv.evaluate_suite(model, suite="language", out=home / "out", **settings), model


def test_the_suite_measures_text_pairs_and_tags_with_baselines(results, treebank, trees):
    measured, model = results
    assert not measured.unmeasured
    by_word = measured.figure("pairs/word/agreement")
    assert by_word.low < by_word.value < by_word.high
    assert set(by_word.baselines) >= {"more frequent form", "fewer tokens"}
    rules = agreement_rules([*trees, *trees])
    made = tree_pairs(trees, FormLexicon.of([*trees, *trees]), rules, most=200)
    kinds = [each.pair.groups["linguistics_term"] for each in made]
    agreeing = [(each.pair.good, each.pair.bad) for each, kind in zip(made, kinds, strict=True) if "agreem" in kind]
    scored = lv.score_pairs(model, agreeing, method="word-l2r", device="cpu")
    assert measured.figure("pairs/sentence/agreement").value == scored.overall.share
    assert measured.figure("pairs/sentence/agreement").examples == len(agreeing)
    tags = measured.figure("tags")
    assert 0.9 < tags.baselines["word forms"] <= 1.0
    assert tags.baselines["always NOUN"] < 0.5
    assert measured.figure("masked/words").value > 0
    assert f"--treebank {treebank}" in measured.records["model"]["pairs"].command
    assert "--corpus" in measured.records["model"]["pairs"].command


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ([], 2, "reads --treebank FILE and --corpus FILE"),
        (["--treebank", "absent.conllu"], 4, "absent.conllu is not a file"),
        (["--treebank", "a", "--treebank", "b", "--treebank", "c"], 2, "one treebank, or two"),
    ],
)
def test_a_wrong_treebank_is_refused(words, code, expected, results, larvatus):
    got, _, said = larvatus("evaluate", results[1], "--suite", "language", *words)
    assert got == code
    assert expected in said


def test_a_treebank_belongs_to_its_suite(results, treebank, tmp_path, larvatus):
    words = ["--suite", "english", "--data", tmp_path, "--treebank", treebank]
    code, _, said = larvatus("evaluate", results[1], *words)
    assert code == 2
    assert "for the suite language, not english" in said


def test_a_treebank_without_features_gives_no_pairs(results, tmp_path):
    plain = [[(form, lemma, upos, "_") for form, lemma, upos, _ in words] for words in (SINGULAR, PLURAL)]
    path = tmp_path / "plain.conllu"
    path.write_text(conllu(plain * 20), encoding="utf-8")
    measured = lv.evaluate_suite(results[1], suite="language", treebank=[path], only="pairs", device="cpu", quiet=True)
    assert [skipped.short for skipped in measured.unmeasured] == ["no FEATS"]
