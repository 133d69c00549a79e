"""Corrections equal their definitions and scipy's; intervals and tests equal those of pairs of systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import false_discovery_control

from larvatus.core.errors import UsageError
from larvatus.metrics.classification import divide
from larvatus.metrics.intervals import paired_bootstrap, randomisation
from larvatus.metrics.many import adjusted, benjamini_hochberg, differences, holm

P = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30)


@given(P)
def test_holm_rejects_step_by_step(p: list[float]) -> None:
    """The smallest p against α / m, the next against α / (m − 1), …, up to the first that is larger."""
    corrected = holm(p)
    for alpha in (0.01, 0.05, 0.2):
        rejected, order = set(), sorted(range(len(p)), key=lambda n: p[n])
        for step, number in enumerate(order):
            if p[number] > alpha / (len(p) - step) * (1 + 1e-12):
                break
            rejected.add(number)
        close = np.abs(corrected - alpha) < 1e-9
        assert {n for n in range(len(p)) if corrected[n] <= alpha and not close[n]} == {
            n for n in rejected if not close[n]
        }


@given(P)
def test_benjamini_hochberg_equals_scipy(p: list[float]) -> None:
    assert_allclose(benjamini_hochberg(p), false_discovery_control(p, method="bh"), rtol=1e-12)


def test_an_unknown_correction_is_refused() -> None:
    assert_allclose(adjusted([0.01, 0.5], "bh"), [0.02, 0.5])
    with pytest.raises(UsageError, match=r"'hollm' is not a correction.*holm or bh"):
        adjusted([0.5], "hollm")  # type: ignore[arg-type]


def test_all_systems_at_once_equal_each_by_itself() -> None:
    draw = np.random.default_rng(3)
    first = np.stack([draw.random(40) < 0.8, np.ones(40)], 1).astype(float)
    others = np.stack([np.stack([draw.random(40) < share, np.ones(40)], 1) for share in (0.8, 0.5, 0.1)], 1)

    def score(sums: np.ndarray) -> np.ndarray:
        return divide(sums[..., 0], sums[..., 1])

    together = differences(first, others, score, samples=500, seed=4)
    for number in range(3):
        boot = paired_bootstrap(first, others[:, number], score, samples=500, seed=4)
        chance = randomisation(first, others[:, number], score, samples=10_000, seed=4)
        assert_allclose(together.change[number], boot.difference)
        assert_allclose([together.low[number], together.high[number]], [boot.low, boot.high])
        assert_allclose(together.p[number], chance.p)
    assert together.p[2] < 0.001 < 0.05 < together.p[0]
