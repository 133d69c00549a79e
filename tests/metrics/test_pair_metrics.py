"""Shares with intervals, and accuracy on minimal pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.metrics.accuracy import Z, accuracy, pair_accuracies, wilson


@given(total=st.integers(1, 5_000), part=st.floats(0, 1))
def test_wilsons_ends_are_the_shares_that_lie_z_errors_from_what_was_seen(total: int, part: float) -> None:
    right = round(part * total)
    low, high = wilson(right, total)
    assert 0 <= low <= right / total <= high <= 1
    for end in (low, high):  # the defining equation: |seen − p| = z √(p(1 − p)/n)
        assert abs(right / total - end) == pytest.approx(Z * np.sqrt(end * (1 - end) / total), abs=1e-7)


def test_wilson_covers_the_truth_about_95_times_of_100() -> None:
    draws = np.random.default_rng(1).binomial(50, 0.9, size=2_000)
    covered = np.mean([low <= 0.9 <= high for low, high in (wilson(int(right), 50) for right in draws)])
    assert 0.93 < covered < 0.98


def test_a_share_of_nothing_is_refused() -> None:
    for right, total in ((0, 0), (2, 1), (-1, 3)):
        with pytest.raises(ValueError, match="no share"):
            accuracy(right=right, total=total)


def test_pairs_by_group_ties_are_wrong_and_pairs_without_a_group_count_overall_only() -> None:
    found = pair_accuracies(
        [-1.0, -2.0, -3.0, -4.0], [-2.0, -2.0, -1.0, -9.0], {"UID": ["a", "a", "b", None], "field": [None] * 4}
    )
    assert (found.overall.right, found.overall.total, found.ties) == (2, 4, 1)
    assert {name: (one.right, one.total) for name, one in found.by["UID"].items()} == {"a": (1, 2), "b": (0, 1)}
    assert "field" not in found.by
