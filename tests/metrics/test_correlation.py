"""Correlations against scipy, thresholds against trying them all, IsoScore* against the paper's steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError
from larvatus.metrics.classification import accuracy, best_threshold
from larvatus.metrics.isotropy import isoscore_star, mean_pair_cosine
from larvatus.metrics.ranking import pearson, ranks, spearman

values = st.lists(st.integers(-5, 5), min_size=2, max_size=30)


@given(a=values, seed=st.integers(0, 99))
def test_correlations_equal_those_of_scipy_ties_included(a, seed):
    b = np.random.default_rng(seed).integers(-3, 3, len(a))
    assert_allclose(ranks(a), scipy.stats.rankdata(a))
    if len(set(a)) == 1 or len(set(b.tolist())) == 1:
        assert math.isnan(spearman(a, b))
        assert math.isnan(pearson(a, b))
        return
    assert_allclose(spearman(a, b), scipy.stats.spearmanr(a, b).statistic, atol=1e-12)
    assert_allclose(pearson(a, b), scipy.stats.pearsonr(a, b).statistic, atol=1e-12)


def test_a_correlation_of_nothing_is_refused():
    for pair in (([1], [1]), ([1, 2], [1, 2, 3]), ([], [])):
        with pytest.raises(DataError, match="two lists of the same length"):
            pearson(*pair)


@given(pairs=st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=25))
def test_no_threshold_is_better_than_the_best(pairs):
    scores, labels = np.array([float(a) for a, _ in pairs]), np.array([b for _, b in pairs])
    found = best_threshold(scores, labels)
    tried = [accuracy(scores > cut, labels) for cut in [-np.inf, np.inf, *(scores + 0.5), *(scores - 0.5)]]
    assert accuracy(scores > found, labels) == max(tried)


def test_a_threshold_between_neighbouring_floats_still_tells_them_apart():
    low = 1.0
    high = np.nextafter(low, 2.0)
    assert accuracy(np.array([low, high]) > best_threshold([low, high], [False, True]), [False, True]) == 1.0
    with pytest.raises(DataError, match="as many finite scores as labels"):
        best_threshold([np.nan], [True])
    with pytest.raises(DataError, match="as many predictions as labels"):
        accuracy([], [])


def naive_isoscore(points):
    """The steps of Rudman et al. 2022, with rotated points: PCA, variances, scaling, defect, score."""
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=True)
    rotated = centred @ axes.T
    n = points.shape[1]
    variances = [sum(value**2 for value in rotated[:, d]) / len(points) for d in range(n)]
    length = math.sqrt(sum(v**2 for v in variances))
    scaled = [v * math.sqrt(n) / length for v in variances]
    defect = math.sqrt(sum((v - 1) ** 2 for v in scaled)) / math.sqrt(2 * (n - math.sqrt(n)))
    return ((n - defect**2 * (n - math.sqrt(n))) ** 2 - n) / (n * (n - 1))


@pytest.mark.parametrize("zeta", [0.0, 0.3])
def test_isoscore_star_equals_the_steps_of_the_paper(zeta):
    generator = np.random.default_rng(4)
    points = generator.normal(size=(200, 6)) * [1, 2, 3, 4, 5, 60] + 7
    covariance = np.cov(points.T, bias=True)
    assert_allclose(isoscore_star(covariance), naive_isoscore(points), rtol=1e-10)
    target = np.diag([1.0, 2, 3, 4, 5, 6])
    mixed = (1 - zeta) * covariance + zeta * target
    spectrum = np.linalg.svd(mixed, compute_uv=False)
    shaped = np.sqrt(len(spectrum)) * np.vstack([np.diag(np.sqrt(spectrum)), -np.diag(np.sqrt(spectrum))])
    assert_allclose(isoscore_star(covariance, target, zeta), naive_isoscore(shaped), rtol=1e-10)


def test_isoscore_is_1_of_equal_variances_and_0_of_a_line():
    assert_allclose(isoscore_star(3 * np.eye(5)), 1.0)
    assert_allclose(isoscore_star(np.diag([1.0, 0, 0, 0])), 0.0, atol=1e-12)
    assert_allclose(isoscore_star(np.diag([1.0, 0, 0, 0]), shrinkage=1.0), 1.0)
    assert math.isnan(isoscore_star(np.zeros((3, 3))))
    with pytest.raises(DataError, match="shrinkage must be between"):
        isoscore_star(np.eye(3), shrinkage=2.0)
    with pytest.raises(DataError, match="2 or more dimensions"):
        isoscore_star(np.eye(1))


def test_mean_cosine_of_pairs_from_the_sum_equals_the_loop_over_pairs():
    u = np.random.default_rng(1).normal(0.3, 1, (9, 4))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    naive = np.mean([u[i] @ u[j] for i in range(9) for j in range(i)])
    assert_allclose(mean_pair_cosine(u.sum(0), 9), naive)
