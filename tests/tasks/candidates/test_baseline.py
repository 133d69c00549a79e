"""TF-IDF and logistic regression of small data give what scikit-learn gives, from the training texts only."""

from __future__ import annotations

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union

from larvatus.core.rng import stream
from larvatus.tasks.candidates.linear import TermCounts, fit_logistic, fit_scaled

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
