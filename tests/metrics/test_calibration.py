"""Calibration against loops, scikit-learn and scipy's minimiser."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.metrics.calibration import (
    COLDEST,
    HOTTEST,
    at_bound,
    brier,
    fit_temperature,
    negative_log_likelihood,
    reliability,
    reliability_of_probabilities,
    sigmoid,
    softmax,
)


def drawn(seed: int, *, items: int = 40, classes: int = 3, scale: float = 3.0):
    """Logits, and labels drawn from their softmax at temperature 2."""
    random = stream(seed, "test calibration")
    logits = random.normal(0, scale, (items, classes))
    labels = (softmax(logits / 2).cumsum(1) < random.random((items, 1))).sum(1).clip(0, classes - 1)
    return logits, labels


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), bins=st.integers(1, 20))
def test_calibration_error_equals_the_loop_over_bins(seed, bins):
    logits, labels = drawn(seed)
    p = softmax(logits)
    naive, rows = 0.0, []
    for b in range(bins):
        inside = [i for i in range(len(p)) if b / bins < p[i].max() <= (b + 1) / bins]
        if inside:
            confidence = sum(p[i].max() for i in inside) / len(inside)
            right = sum(p[i].argmax() == labels[i] for i in inside) / len(inside)
            naive += len(inside) / len(p) * abs(confidence - right)
            rows.append((len(inside), confidence, right))
    found = reliability_of_probabilities(p, labels, kind="softmax", bins=bins)
    assert_allclose(found.ece, naive)
    full = found.count > 0
    assert_allclose(np.stack([found.count, found.confidence, found.accuracy], 1)[full], rows)


def test_a_sure_system_that_is_wrong_half_the_time_is_half_wrong():
    assert reliability([1.0, 1.0, 0.0, 0.0], [True, False, False, False]).ece == 0.25
    assert reliability([1.0] * 4, [True, False] * 2).ece == 0.5
    assert reliability_of_probabilities([0.0, 1.0], [1, 1], kind="sigmoid").ece == 0.5


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_likelihood_and_brier_score_equal_those_of_scikit_learn(seed):
    logits, labels = drawn(seed)
    p, classes = softmax(logits), [0, 1, 2]
    assert_allclose(p, scipy.special.softmax(logits, axis=1))
    assert_allclose(negative_log_likelihood(logits, labels), sklearn.metrics.log_loss(labels, p, labels=classes))
    assert_allclose(brier(p, labels), sum(((p[i] - np.eye(3)[labels[i]]) ** 2).sum() for i in range(40)) / 40)
    yes = labels > 0
    assert_allclose(sigmoid(logits), scipy.special.expit(logits))
    chance = sigmoid(logits[:, 0])
    assert_allclose(
        negative_log_likelihood(logits[:, 0], yes, kind="sigmoid"),
        sklearn.metrics.log_loss(yes, chance, labels=[False, True]),
    )
    assert_allclose(brier(chance, yes, kind="sigmoid"), ((chance - yes) ** 2).mean())


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000), kind=st.sampled_from(["softmax", "sigmoid"]), scale=st.sampled_from([0.001, 1.0, 300.0])
)
def test_the_temperature_is_that_of_scipys_minimiser(seed, kind, scale):
    logits, labels = drawn(seed)
    if kind == "sigmoid":
        labels = labels[:, None] == np.arange(3)
    logits = logits * scale
    found = fit_temperature(logits, labels, kind=kind)

    def loss(log_t: float) -> float:
        return negative_log_likelihood(logits / np.exp(log_t), labels, kind=kind)

    bounds = (np.log(COLDEST), np.log(HOTTEST))
    wanted = scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    assert loss(np.log(found)) <= wanted.fun + 1e-12
    if bounds[0] + 1e-3 < wanted.x < bounds[1] - 1e-3:
        assert_allclose(np.log(found), wanted.x, atol=1e-4)


def test_a_temperature_is_found_again_and_mends_the_calibration():
    logits, labels = drawn(1, items=20_000)
    temperature = fit_temperature(logits, labels)
    assert_allclose(temperature, 2.0, rtol=0.03)
    before, after = (
        reliability_of_probabilities(softmax(logits / t), labels, kind="softmax").ece for t in (1.0, temperature)
    )
    assert after < 0.02 < 0.1 < before


def test_temperatures_without_an_optimum_end_at_a_bound_and_say_so():
    sure = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert_allclose(fit_temperature(sure, [0, 1]), COLDEST)
    assert_allclose(fit_temperature(sure, [1, 0]), HOTTEST)
    assert all(at_bound(fit_temperature(sure, labels)) for labels in ([0, 1], [1, 0]))
    logits, labels = drawn(3)
    for scale in (1e-3, 1.0, 1e3):  # far from 1, but an optimum
        assert not at_bound(fit_temperature(logits * scale, labels))
    assert fit_temperature(np.zeros((2, 2)), [0, 1]) == 1.0
    assert np.isfinite(fit_temperature(sure * 1e6, [0, 0]))


def test_what_has_no_calibration_is_refused():
    for x, y, kind, message in (
        ([[0.0, 1.0]], [2], "softmax", "classes run from 0 to 1; found 2 to 2"),
        ([[0.0, 1.0]], [0, 1], "softmax", "labels"),
        ([0.0, 1.0], [0, 2], "sigmoid", "0 or 1"),
        ([0.0, 1.0], [0], "sigmoid", "shape of the logits"),
        ([[0.0, np.nan]], [0], "softmax", "finite"),
    ):
        with pytest.raises(DataError, match=message):
            fit_temperature(x, y, kind=kind)
    with pytest.raises(UsageError, match="softmax or sigmoid"):
        fit_temperature([0.0], [0], kind="other")
    with pytest.raises(DataError, match="between 0 and 1"):
        reliability([1.5], [True])
    with pytest.raises(DataError, match="at least one"):
        reliability([], [])
