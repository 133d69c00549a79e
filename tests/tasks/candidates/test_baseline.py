"""TF-IDF and logistic regression of small data give what scikit-learn gives, from the training texts only."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union

from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.metrics.intervals import paired_bootstrap
from larvatus.tasks.candidates import baseline
from larvatus.tasks.candidates.baseline import bag_of_words
from larvatus.tasks.candidates.linear import TermCounts, fit_logistic, fit_scaled
from larvatus.tasks.candidates.report import compare_with_baseline

TEXTS = [
    "The river was wide, and a bank of it deep.", "Please turn in your homework!", "A deep river", "in in in a bank",
    "Your homework was wide of the mark", "x", "the Bank of the River Xanten", "turn, please; turn", "bänk über river",
    "a homework of the deep", "please, a bank", "wide wide river",
]  # fmt: skip
LABELS = np.array([0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0])
TRAINED = np.arange(len(TEXTS)) < 8


def theirs() -> tuple[np.ndarray, np.ndarray]:
    """TF-IDF of training texts and of all, by vocabulary and frequencies of the training texts."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    both = make_union(words, characters)
    train = both.fit_transform([text for text, kept in zip(TEXTS, TRAINED, strict=True) if kept])
    return train.toarray(), both.transform(TEXTS).toarray()


def test_products_are_those_of_scikit_learn() -> None:
    train, every = theirs()
    np.testing.assert_allclose(TermCounts.of(TEXTS).kernel(TRAINED), every @ train.T, atol=1e-5)


def test_predictions_are_those_of_scikit_learn() -> None:
    train, every = theirs()
    fitted = LogisticRegression(C=10.0, tol=1e-8, max_iter=5_000).fit(train, LABELS[TRAINED])
    # softmax gives both classes half of the sigmoid's weights, whose penalty is then half as large
    (logits,) = TermCounts.of(TEXTS).predict(LABELS, TRAINED, classes=2, penalties=[5.0])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(shares, fitted.predict_proba(every), atol=1e-3)


def test_no_test_text_changes_what_is_known_of_the_training_texts() -> None:
    others = [text if kept else "zzz qqq" for text, kept in zip(TEXTS, TRAINED, strict=True)]
    first, second = TermCounts.of(TEXTS).kernel(TRAINED), TermCounts.of(others).kernel(TRAINED)
    np.testing.assert_array_equal(first[TRAINED], second[TRAINED])
    assert np.abs(second[~TRAINED]).max() == 0  # none of their terms is in the vocabulary


def test_labels_of_test_texts_are_not_read() -> None:
    changed = np.where(TRAINED, LABELS, 1 - LABELS)
    first, second = (TermCounts.of(TEXTS).predict(y, TRAINED, classes=2, penalties=[3.0])[0] for y in (LABELS, changed))
    np.testing.assert_array_equal(first, second)


def test_logistic_regression_of_three_classes_is_that_of_scikit_learn() -> None:
    random = stream(3, "test features")
    x, y = random.normal(size=(60, 5)), random.integers(0, 3, 60)
    fitted = LogisticRegression(C=3.0, tol=1e-10, max_iter=5_000).fit(x, y)
    ours = fit_logistic(x, y, classes=3, penalties=[1.0, 3.0])[1]
    np.testing.assert_allclose(ours.weight, fitted.coef_, atol=1e-3)
    centred = ours.bias - ours.bias.mean()  # softmax leaves a constant free
    np.testing.assert_allclose(centred, fitted.intercept_ - fitted.intercept_.mean(), atol=1e-3)


def test_scaled_features_predict_the_same_at_any_scale() -> None:
    random = stream(4, "test features")
    x, y = random.normal(size=(40, 4)) + 3, random.integers(0, 2, 40)
    first = fit_scaled(x, y, classes=2, penalties=[3.0])[0].logits(x)
    second = fit_scaled(1_000 * x - 7, y, classes=2, penalties=[3.0])[0].logits(1_000 * x - 7)
    np.testing.assert_allclose(first, second, atol=1e-4)


# ---- a comparison of a model with it


def dataset(texts: list[str], labels: list[str]) -> Dataset[TextExample]:
    rows = enumerate(zip(texts, labels, strict=True))
    made = [TextExample(text, None, label, Place("t.tsv", n)) for n, (text, label) in rows]
    return Dataset(tuple(made), "t.tsv", kind="multi-class")


@pytest.mark.parametrize("chosen_up_to", [1_000, 4])
def test_held_out_texts_get_the_labels_that_scikit_learn_gives(
    chosen_up_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the penalty is chosen, here among one, and where the middle one is taken."""
    monkeypatch.setattr(baseline, "PENALTIES", (5.0,) if chosen_up_to > 4 else (1e-6, 5.0, 1e6))
    monkeypatch.setattr(baseline, "CHOSEN_UP_TO", chosen_up_to)
    names = np.array(["dry", "wet"])[LABELS].tolist()
    train, held_out = dataset(TEXTS[:8], names[:8]), dataset(TEXTS[8:], names[8:])
    _, every = theirs()
    fitted = LogisticRegression(C=10.0, tol=1e-8, max_iter=5_000).fit(every[:8], names[:8])
    assert bag_of_words(train, held_out) == fitted.predict(every[8:]).tolist()


def test_labels_of_held_out_texts_are_not_read() -> None:
    texts = [f"{word} {n}" for n in range(12) for word in ("river", "homework")]
    train = dataset(texts, ["wet", "dry"] * 12)
    answers = {
        tuple(bag_of_words(train, dataset(["a river", "the homework"], labels)))
        for labels in (["?", "?"], ["dry", "wet"])
    }
    assert answers == {("wet", "dry")}


def test_one_class_is_no_baseline() -> None:
    with pytest.raises(DataError, match="two classes"):
        bag_of_words(dataset(["a", "b"], ["x", "x"]), dataset(["c"], ["x"]))


def answers(gold: list[str], right: int) -> list[str]:
    """The first `right` answers are right."""
    return [each if n < right else ("b" if each == "a" else "a") for n, each in enumerate(gold)]


@pytest.mark.parametrize(
    ("model", "bag", "outcome", "words"),
    [
        (180, 120, "model", "The model is better than a bag of words: accuracy 0.900 against 0.600 on 200 texts"),
        (120, 180, "baseline", "A bag of words is better: accuracy 0.600 against 0.900"),
        (150, 149, "unclear", "No clear difference from a bag of words"),
        (150, 150, "unclear", "difference +0.000 to +0.000"),
    ],
)
def test_the_verdict_follows_the_interval_of_the_difference(model: int, bag: int, outcome: str, words: str) -> None:
    gold = ["a", "b"] * 100
    both = compare_with_baseline(gold, answers(gold, bag), answers(gold, model), labels=("a", "b"))
    right = [np.array([[a == b, 1.0] for a, b in zip(gold, answers(gold, n), strict=True)]) for n in (bag, model)]
    direct = paired_bootstrap(*right, lambda sums: sums[..., 0] / sums[..., 1])
    assert (both.outcome, both.model, both.baseline) == (outcome, model / 200, bag / 200)
    assert (both.low, both.high) == pytest.approx((direct.low, direct.high))
    assert both.model_low <= both.model <= both.model_high
    assert words in both.verdict
    assert both.to_dict()["verdict"] == both.verdict


def test_the_f1_of_two_classes_is_that_of_the_models_second() -> None:
    gold, model = ["no", "yes", "yes", "no"], ["no", "yes", "no", "no"]
    both = compare_with_baseline(gold, ["no"] * 4, model, labels=("no", "yes"), metric="f1")
    assert (both.model, both.baseline) == (pytest.approx(2 / 3), 0.0)
    macro = compare_with_baseline(gold, ["maybe"] * 4, model, labels=("no", "yes"), metric="macro-f1")
    assert macro.baseline == 0.0  # a label that the model does not know
