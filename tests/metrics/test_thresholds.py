"""Average precision and best accuracy of scored pairs, against scikit-learn and naive loops."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from larvatus.core.errors import DataError
from larvatus.metrics.ranking import average_precision_of_scores, best_accuracy

pairs = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30)


@given(pairs=pairs)
def test_average_precision_equals_that_of_scikit_learn_also_with_ties(pairs):
    scores, matches = zip(*pairs, strict=True)
    if any(matches):
        expected = average_precision_score(matches, scores)
        assert average_precision_of_scores(scores, matches) == pytest.approx(expected, abs=1e-12)
    else:
        assert math.isnan(average_precision_of_scores(scores, matches))


@given(pairs=pairs)
def test_the_best_accuracy_is_that_of_some_threshold_and_of_no_better_one(pairs):
    scores, matches = zip(*pairs, strict=True)
    accuracies = [
        sum((score >= threshold) == match for score, match in pairs) / len(pairs)
        for threshold in {*scores, max(scores) + 1}
    ]
    assert best_accuracy(scores, matches) == pytest.approx(max(accuracies), abs=1e-12)


def test_the_order_of_a_file_never_counts():
    assert average_precision_of_scores([0.5, 0.5], [1, 0]) == average_precision_of_scores([0.5, 0.5], [0, 1]) == 0.5
    assert best_accuracy([0.5, 0.5], [1, 0]) == 0.5


def test_scores_that_are_not_finite_or_do_not_fit_are_refused():
    for scores, matches in (([float("nan"), 1.0], [1, 0]), ([1.0], [1, 0]), ([], [])):
        with pytest.raises(DataError, match="finite score and a truth value each"):
            average_precision_of_scores(scores, matches)
