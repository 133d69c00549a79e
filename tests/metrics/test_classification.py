"""Scores of classifiers against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as theirs
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.metrics.classification import accuracy_of, average, confusion, f1_by_class, matthews, multi_label

pairs = st.integers(1, 5).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=30),
    )
)


@pytest.mark.filterwarnings("ignore:A single label")
@settings(max_examples=60)
@given(case=pairs)
def test_scores_of_single_labels_equal_those_of_scikit_learn(case):
    classes, answers = case
    gold, predicted = np.array(answers).T
    labels = list(range(classes))
    table = confusion(gold, predicted, classes=classes)
    assert table.tolist() == theirs.confusion_matrix(gold, predicted, labels=labels).tolist()
    assert_allclose(accuracy_of(table), theirs.accuracy_score(gold, predicted))
    counts = f1_by_class(table)
    wanted = theirs.precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    for found, each in zip((counts.precision, counts.recall, counts.f1, counts.gold), wanted, strict=True):
        assert_allclose(found, each)
    for how in ("macro", "micro", "weighted"):  # scikit-learn averages over the classes that occur, too
        found = average(counts, how)
        each = theirs.precision_recall_fscore_support(gold, predicted, average=how, zero_division=0)
        assert_allclose((found.precision, found.recall, found.f1), each[:3])
        assert found.support == len(gold)
    assert_allclose(matthews(table), theirs.matthews_corrcoef(gold, predicted), atol=1e-12)


def test_binary_f1_takes_a_positive_class():
    random = stream(1, "test binary")
    gold, predicted = random.integers(0, 2, 50), random.integers(0, 2, 50)
    counts = f1_by_class(confusion(gold, predicted, classes=2))
    for positive in (0, 1):
        assert_allclose(counts.of(positive).f1, theirs.f1_score(gold, predicted, pos_label=positive))


def test_matthews_does_not_overflow_on_a_billion_answers():
    table = np.array([[900_000_000, 100_000_000], [50_000_000, 950_000_000]])
    assert_allclose(matthews(table), matthews(table // 10_000_000), rtol=1e-12)


@settings(max_examples=40)
@given(items=st.integers(1, 12), labels=st.integers(1, 5), seed=st.integers(0, 1000))
def test_scores_of_several_labels_equal_those_of_scikit_learn(items, labels, seed):
    random = stream(seed, "test multi-label")
    gold, predicted = random.random((2, items, labels)) < [[[0.3]], [[0.4]]]
    found = multi_label(gold, predicted)
    # one column reads as one binary task there: a second, empty one, weighs nothing but in macro
    a, b = (np.hstack([each, np.zeros((items, 1), bool)]).astype(int) for each in (gold, predicted))
    for how, ours in (("micro", found.micro), ("weighted", found.weighted)):
        each = theirs.precision_recall_fscore_support(a, b, average=how, zero_division=0)
        assert_allclose((ours.precision, ours.recall, ours.f1), each[:3])
    macro = theirs.precision_recall_fscore_support(a, b, average="macro", zero_division=0)
    ours = (found.macro.precision, found.macro.recall, found.macro.f1)
    assert_allclose(np.array(ours) * labels / (labels + 1), macro[:3])
    assert_allclose(found.exact_match, theirs.accuracy_score(a, b))
    assert_allclose(found.hamming * labels / (labels + 1), theirs.hamming_loss(a, b))


def test_answers_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="as many predictions as labels"):
        confusion([0, 1], [0], classes=2)
    with pytest.raises(DataError, match="classes run from 0 to 1; found 0 to 2"):
        confusion([0, 1], [0, 2], classes=2)
    with pytest.raises(DataError, match="two tables of items by labels"):
        multi_label([[True]], [True])


def test_nothing_at_all_scores_0():
    table = confusion([], [], classes=2)
    assert accuracy_of(table) == matthews(table) == average(f1_by_class(table), "macro").f1 == 0.0
