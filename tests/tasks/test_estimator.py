"""The estimators do what scikit-learn asks of its own: grids, pipelines, cross-validation, clones; and alone."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from larvatus import TextClassifier, WordTagger
from larvatus.core.errors import DataError, UsageError
from larvatus.models.bundle.directory import load_bundle
from tests import warm

SHAPES = ("the {} bank of the river", "a {} river", "please , your {} homework !", "turn in the {} bank .")
TEXTS = [SHAPES[n // 2 % 4].format("wide" if n % 2 else "deep") for n in range(40)]
CLASSES = ["broad" if n % 2 else "profound" for n in range(40)]
QUICK: dict[str, Any] = {"epochs": 6, "rate": 1e-2, "batch": 8, "device": "cpu"}
BRIEF = QUICK | {"epochs": 2}
"""Where nothing need be learnt."""
SENTENCES = [text.split() for text in TEXTS]
TAGS = [["B-LOC" if word == "river" else "O" for word in words] for words in SENTENCES]


@pytest.fixture(scope="module")
def directory(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("base") / "m", tiny_model(seed=2)))


@pytest.fixture(scope="module")
def fitted(directory: str) -> TextClassifier:
    return TextClassifier(directory, **QUICK).fit(TEXTS, CLASSES)


def test_it_learns_what_differs_by_one_word(fitted: TextClassifier) -> None:
    assert fitted.classes_.tolist() == ["broad", "profound"]
    assert fitted.score(TEXTS, CLASSES) == 1.0
    assert fitted.predict(["a wide bank", "a deep bank"]).tolist() == ["broad", "profound"]
    shares = fitted.predict_proba(np.array(TEXTS[:3]))
    assert shares.shape == (3, 2)
    assert shares.sum(1) == pytest.approx(1)
    assert fitted.predict([]).shape == (0,)


def test_classes_keep_their_kind_and_order(directory: str) -> None:
    """Numbers stay numbers, and ten comes after nine."""
    labels = np.array([9 if n % 2 else 10 for n in range(40)])
    found = TextClassifier(directory, **QUICK).fit(TEXTS, labels)
    assert found.classes_.tolist() == [9, 10]
    assert found.predict(TEXTS).dtype == labels.dtype
    assert found.score(TEXTS, labels) == 1.0
    text = TextClassifier(directory, **QUICK).fit(TEXTS, labels.astype(str))
    assert text.classes_.tolist() == ["10", "9"]  # as scikit-learn sorts
    assert text.score(TEXTS, labels.astype(str)) == 1.0
    assert text.predict_proba(TEXTS)[:, ::-1] == pytest.approx(found.predict_proba(TEXTS))


def test_pairs_are_tuples_or_two_columns(directory: str) -> None:
    pairs = [("the river", text) for text in TEXTS]
    one = TextClassifier(directory, **BRIEF).fit(pairs, CLASSES)
    other = TextClassifier(directory, **BRIEF).fit(np.array(pairs), CLASSES)
    assert np.array_equal(one.predict_proba(pairs), other.predict_proba(np.array(pairs)))


def test_the_same_seed_gives_the_same_model(directory: str) -> None:
    first = TextClassifier(directory, **BRIEF).fit(TEXTS, CLASSES)
    again = clone(first).fit(TEXTS, CLASSES)
    assert np.array_equal(again.predict_proba(TEXTS), first.predict_proba(TEXTS))
    other = clone(first).set_params(seed=1).fit(TEXTS, CLASSES)
    assert not np.array_equal(other.predict_proba(TEXTS), first.predict_proba(TEXTS))


def test_grid_search_finds_the_rate_that_learns(directory: str) -> None:
    grid = GridSearchCV(TextClassifier(directory, **QUICK), {"rate": [1e-9, 1e-2]}, cv=2)
    grid.fit(TEXTS, CLASSES)
    assert grid.best_params_ == {"rate": 1e-2}
    assert grid.best_score_ > 0.9
    assert grid.predict(["a wide bank"]).tolist() == ["broad"]
    assert grid.predict_proba(["a wide bank"]).shape == (1, 2)


def test_pipelines_and_cross_validation(directory: str) -> None:
    shout = FunctionTransformer(lambda texts: [text.removeprefix("> ") for text in texts])
    pipe = Pipeline([("clean", shout), ("classify", TextClassifier(directory, **QUICK))])
    quoted = [f"> {text}" for text in TEXTS]
    assert cross_val_score(pipe, quoted, CLASSES, cv=2, scoring="neg_log_loss").mean() > -0.3
    pipe.set_params(classify__epochs=1, classify__trained="head").fit(quoted, CLASSES)
    assert len(pipe.predict(quoted)) == 40


def test_it_is_a_classifier_that_can_be_cloned_and_pickled(fitted: TextClassifier) -> None:
    assert is_classifier(fitted)
    assert not is_classifier(WordTagger())
    assert fitted.get_params()["rate"] == 1e-2
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "classes_")
    copied = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copied.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    with pytest.raises(ValueError, match="Invalid parameter 'rates'"):
        fitted.set_params(rates=1)


def test_a_loaded_model_serves_and_stays_as_it_was(directory: str) -> None:
    bundle = load_bundle(directory)
    before = {name: tensor.clone() for name, tensor in bundle.network.state_dict().items()}
    TextClassifier(bundle, **{**QUICK, "epochs": 1}).fit(TEXTS, CLASSES)
    assert all(bool((tensor == before[name]).all()) for name, tensor in bundle.network.state_dict().items())


def test_holding_out_gives_a_score(directory: str, fitted: TextClassifier) -> None:
    assert fitted.held_out_score_ is None
    found = TextClassifier(directory, hold_out=True, class_weight="balanced", **BRIEF).fit(TEXTS, CLASSES)
    assert found.held_out_score_ is not None
    assert 0 <= found.held_out_score_ <= 1


@pytest.mark.parametrize("crf", [False, True])
def test_a_tagger_learns_and_scores_entities(directory: str, crf: bool) -> None:
    tagger = WordTagger(directory, crf=crf, **QUICK).fit(SENTENCES, TAGS)
    assert tagger.classes_.tolist() == ["O", "B-LOC", "I-LOC"]
    assert tagger.predict([["a", "wide", "river"], []]) == [["O", "O", "B-LOC"], []]
    assert tagger.score(SENTENCES, TAGS) == 1.0
    wrong = [["O"] * len(words) for words in SENTENCES[:-2]] + TAGS[-2:]
    assert tagger.score(SENTENCES, wrong) < 0.2
    shares = tagger.predict_proba([["a", "wide", "river"], ["the"]])
    assert [one.shape for one in shares] == [(3, 3), (1, 3)]
    assert np.concatenate(shares).sum(1) == pytest.approx(1, abs=1e-5)
    assert shares[0].argmax(1).tolist() == [0, 0, 1]


def test_parts_of_speech_are_scored_by_words_and_cross_validated(directory: str) -> None:
    tags = [["NOUN" if word in ("river", "bank", "homework") else "X" for word in words] for words in SENTENCES]
    found = cross_val_score(WordTagger(directory, **{**QUICK, "epochs": 4}), SENTENCES, tags, cv=2)
    assert found.min() > 0.9


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (["the", "a"], ["x"], "2 texts need as many classes"),
        (["the", "a"], ["x", "x"], "all examples are labelled 'x'"),
        (["the", "a"], [0.5, 0.7], "regression is for larvatus finetune"),
        (["the", 3], ["x", "y"], r"X\[1\] is int, not text"),
        ([("a", "b", "c"), "a"], ["x", "y"], "X holds tuple"),
        (["the", "a"], [["x"], ["y"]], "not an array of shape"),
    ],
)
def test_bad_examples_are_named(directory: str, X: Any, y: Any, said: str) -> None:
    with pytest.raises((DataError, UsageError), match=said):
        TextClassifier(directory, **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([["the"]], [], "1 sentences, but tags of 0"),
        ([["the", "a"]], [["O"]], "text 1: 2 words but 1 tags"),
        (["the a"], [["O", "O"]], "is one text, not a list of words"),
        ([["the", "a"], ["a"]], [["O", "I-LOC"], ["B-LOC"]], "text 1: word 2"),
    ],
)
def test_bad_sentences_are_named(directory: str, X: Any, y: Any, said: str) -> None:
    with pytest.raises((DataError, UsageError), match=said):
        WordTagger(directory, **QUICK).fit(X, y)


def test_bad_settings_are_named(directory: str) -> None:
    for settings, said in (
        ({"pool": "sum"}, "pool is cls, mean or max"),
        ({"class_weight": "even"}, "class_weight is balanced"),
        ({"trained": "some"}, "some"),
        ({"epochs": 0}, "epochs = 0 must lie between 1"),
    ):
        with pytest.raises(UsageError, match=said):
            TextClassifier(directory, **{**QUICK, **settings}).fit(TEXTS, CLASSES)
    with pytest.raises(NotFittedError, match="this TextClassifier is not fitted yet"):
        TextClassifier(directory).predict(["the"])
    with pytest.raises(UsageError, match="not one text: \\[text\\]"):
        TextClassifier(directory).fit("the", ["x"])  # type: ignore[arg-type]


def test_without_scikit_learn_they_work_by_themselves(directory: str, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(
        f"""
import sys
sys.modules["sklearn"] = None  # as if it were not installed
from larvatus import TextClassifier
texts = ["a wide bank", "a deep bank"] * 8
one = TextClassifier({directory!r}, epochs=1, device="cpu")
assert one.get_params()["epochs"] == 1
assert one.set_params(epochs=2) is one and one.epochs == 2
try:
    one.set_params(epoch=1)
except ValueError as fault:
    assert "has no parameter 'epoch'" in str(fault)
else:
    raise SystemExit("a wrong name was taken")
try:
    one.predict(texts)
except Exception as fault:
    assert type(fault).__name__ == "UsageError"
assert len(one.fit(texts, ["w", "d"] * 8).predict(texts)) == 16
""",
        encoding="utf-8",
    )
    warm.run_bare([sys.executable, script], check=True)


def test_groups_are_held_out_whole_and_refused_where_nothing_is(directory: str) -> None:
    texts = [f"{text} {n}" for n, text in enumerate(TEXTS)]
    groups = [n // 4 for n in range(40)]
    found = TextClassifier(directory, hold_out=True, **BRIEF).fit(texts, CLASSES, groups)
    assert found.held_out_score_ is not None
    WordTagger(directory, hold_out=True, **BRIEF).fit(SENTENCES, TAGS, groups)
    with pytest.raises(UsageError, match="unless hold_out=True"):
        TextClassifier(directory, **BRIEF).fit(texts, CLASSES, groups)
    with pytest.raises(DataError, match="40 examples, but groups of 3"):
        TextClassifier(directory, hold_out=True, **BRIEF).fit(texts, CLASSES, [1, 2, 3])
    with pytest.raises(DataError, match="1 groups are too few"):
        TextClassifier(directory, hold_out=True, **BRIEF).fit(texts, CLASSES, [1] * 40)
