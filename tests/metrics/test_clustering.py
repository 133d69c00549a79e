"""V-measure against scikit-learn and naive loops, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import v_measure_score

from larvatus.core.errors import DataError
from larvatus.metrics.classification import v_measure, v_measure_interval

documents = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=2, max_size=40)


@given(documents=documents)
def test_v_measure_equals_that_of_scikit_learn(documents):
    labels, clusters = zip(*documents, strict=True)
    assert v_measure(labels, clusters) == pytest.approx(v_measure_score(labels, clusters), abs=1e-10)


@given(documents=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=25))
def test_the_deviation_is_the_jackknife_s_over_documents(documents):
    labels, clusters = (np.array(side) for side in zip(*documents, strict=True))
    count = len(labels)
    without = np.array([v_measure_score(np.delete(labels, i), np.delete(clusters, i)) for i in range(count)])
    expected = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    interval = v_measure_interval(labels, [clusters])
    assert interval.deviation == pytest.approx(expected, abs=1e-8)
    assert interval.low <= interval.value <= interval.high


def test_seeds_that_differ_widen_the_interval():
    labels = np.repeat(np.arange(4), 25)
    same, other = labels.copy(), np.roll(labels, 12)
    of_one, of_two = v_measure_interval(labels, [same]), v_measure_interval(labels, [same, other])
    assert (of_one.value, of_one.low, of_one.high) == (1.0, pytest.approx(1.0), 1.0)
    assert of_two.value == pytest.approx((1 + v_measure_score(labels, other)) / 2)
    assert of_two.low == 0.0  # two seeds say little: t with one degree of freedom


def test_the_interval_covers_v_of_the_population():
    """Labels are known with 80%: the truth is V of very many documents."""
    random = np.random.default_rng(0)

    def sample(count):
        labels = random.integers(0, 3, count)
        return labels, np.where(random.random(count) < 0.8, labels, random.integers(0, 3, count))

    truth = v_measure(*sample(200_000))
    covered = 0
    for _ in range(200):
        labels, clusters = sample(300)
        interval = v_measure_interval(labels, [clusters])
        covered += interval.low <= truth <= interval.high
    assert 180 <= covered <= 200


def test_one_document_or_lists_that_differ_are_refused():
    for labels, clusters in (([0], [0]), ([0, 1], [0])):
        with pytest.raises(DataError, match="2 documents or more"):
            v_measure(labels, clusters)
