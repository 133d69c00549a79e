"""A temperature is used where it makes held-out probabilities better, and people are told where it is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from larvatus.core.rng import stream
from larvatus.metrics.calibration import HOTTEST
from larvatus.models.heads import QuestionAnsweringConfig
from larvatus.tasks.answers.evaluation import _fitted
from larvatus.tasks.validation import Calibration, accept_or_refuse, fit_calibration


def logits_and_labels(seed: int, *, items: int, temperature: float) -> tuple[Any, Any]:
    random = stream(seed, "test calibrated")
    logits = random.normal(0, 3, (items, 3))
    chances = scipy.special.softmax(logits / temperature, axis=1)
    return logits, np.array([random.choice(3, p=row) for row in chances])


def likeliest(logits: Any, labels: Any) -> float:
    """By scipy."""

    def loss(log_t: float) -> float:
        own = scipy.special.log_softmax(logits / np.exp(log_t), axis=1)
        return -float(own[np.arange(len(labels)), labels].mean())

    found = scipy.optimize.minimize_scalar(loss, bounds=(-9.0, 9.0), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_temperature_that_helps_is_used_however_far_from_one(scale: float) -> None:
    """At a scale of 100 the optimum is 200, at 0.01 it is 0.02: both were cut to the old bounds of 20 and 0.05."""
    logits, labels = logits_and_labels(1, items=400, temperature=2.0)
    fit = fit_calibration(logits * scale, labels, kind="softmax")
    assert fit.temperature == fit.fitted == pytest.approx(likeliest(logits * scale, labels), rel=1e-4)
    assert fit.after < fit.before
    assert fit.loss_after < fit.loss_before
    assert fit.line.startswith(
        f"calibrated: temperature {fit.fitted:.3f}, expected calibration error {fit.before:.4f} →"
    )


def test_a_temperature_that_makes_held_out_probabilities_worse_is_not_used_and_said() -> None:
    refused, compared = [], 0
    for seed in range(30):
        logits, labels = logits_and_labels(seed, items=12, temperature=1.0)
        fit = fit_calibration(logits, labels, kind="softmax")
        # both figures with each half's temperature fitted on the other half, by scipy
        even, odd = (likeliest(logits[half::2], labels[half::2]) for half in (0, 1))
        cold = np.where(np.arange(12)[:, None] % 2 == 0, logits / odd, logits / even)
        before, after = (
            -float(scipy.special.log_softmax(x, axis=1)[np.arange(12), labels].mean()) for x in (logits, cold)
        )
        assert fit.loss_before == pytest.approx(before)
        if min(even, odd) > 0.05:  # below, a half is all right: scipy stops where the loss is flat
            compared += 1
            assert fit.loss_after == pytest.approx(after, rel=1e-3)
        if fit.loss_after > fit.loss_before or fit.after > fit.before:
            assert fit.temperature == 1.0
            refused.append(fit)
        elif not fit.refused:
            assert fit.temperature == fit.fitted
    assert compared > 10
    assert {fit.refused for fit in refused} >= {"it makes the held-out loss worse"}
    assert all(
        f"not calibrated: {fit.refused}" in fit.line and f"temperature {fit.fitted:.3g}," in fit.line for fit in refused
    )


def test_a_better_loss_with_a_worse_calibration_error_is_refused_as_well() -> None:
    fit = accept_or_refuse(Calibration(fitted=2.0, before=0.1, after=0.2, loss_before=1.0, loss_after=0.9))
    assert (fit.temperature, fit.refused) == (1.0, "it makes the calibration error worse")
    better = accept_or_refuse(Calibration(fitted=2.0, before=0.2, after=0.1, loss_before=1.0, loss_after=0.9))
    assert (better.temperature, better.refused) == (2.0, "")


def test_examples_without_an_optimum_keep_their_probabilities_and_say_why() -> None:
    sure = np.array([[5.0, 0.0], [0.0, 5.0]] * 4)
    right, wrong = [0, 1] * 4, [1, 0] * 4
    for labels, why in ((right, "all held-out examples are right"), (wrong, "no better than chance")):
        fit = fit_calibration(sure, np.array(labels), kind="softmax")
        assert fit.temperature == 1.0
        assert why in fit.refused
        assert why in fit.line
    flat = fit_calibration(np.zeros((8, 2)), np.array(right), kind="softmax")
    assert flat.temperature == flat.fitted == 1.0  # any would do
    few = fit_calibration(np.array([[2.0, 1.0], [0.5, 1.0], [1.0, 0.0]]), np.array([0, 0, 0]), kind="softmax")
    assert few.temperature == 1.0
    assert "too few" in few.line
    assert Calibration().line == ""
    assert math.isnan(Calibration().fitted)


def test_groups_are_never_on_both_sides() -> None:
    """Two texts of which each is perfect under its own temperature: fitted on the other, it is not."""
    logits, labels = logits_and_labels(5, items=200, temperature=1.0)
    groups = np.repeat([0, 1], 100)
    mixed = np.where(groups[:, None] == 0, logits * 5, logits / 5)
    apart, together = (fit_calibration(mixed, labels, kind="softmax", groups=g) for g in (groups, None))
    assert apart.refused
    assert apart.loss_after > together.loss_after


def test_temperatures_of_answers_are_checked_too() -> None:
    config = QuestionAnsweringConfig(longest=3, null=False)
    random = stream(7, "test calibrated")
    cases = []
    for _ in range(40):
        both_T2 = random.normal(0, 8, (6, 2))
        spans = [(i, j) for i in range(6) for j in range(i, min(6, i + 3))]
        scores = np.array([both_T2[i, 0] + both_T2[j, 1] for i, j in spans])
        picked = random.choice(len(spans), p=scipy.special.softmax(scores / 4))
        cases.append((both_T2, float(scores[picked]), 0.0))
    fit = _fitted(cases, config)
    assert fit.temperature == fit.fitted == pytest.approx(4.0, rel=0.3)
    assert fit.loss_after < fit.loss_before
    assert _fitted(cases[:3], config).temperature == 1.0
    worst = [(both, float(both[:, 0].min() + both[:, 1].min()) - 1, 0.0) for both, _, _ in cases]
    assert _fitted(worst, config).fitted == HOTTEST
    assert "chance" in _fitted(worst, config).line
