"""Clusters and crossed factors are resampled as they were sampled: equal to a naive loop, and 95% intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.metrics.intervals import (
    bootstrap,
    cluster_bootstrap,
    crossed_mean,
    expanded_level,
    mean_of_sums,
    mean_rows,
    t_quantile,
)

LEVEL = 0.95


def occupations(random: np.random.Generator, between: float) -> tuple[Doubles, np.ndarray, np.ndarray]:
    """Sentences about 20 occupations in each of two strata, which differ, as occupations do; the mean of all is 0."""
    strata = np.repeat([0, 1], 20 * 20)
    clusters = np.repeat(np.arange(40), 20)
    means = np.where(np.arange(40) < 20, 1.0, -1.0) + random.normal(0, between, 40)
    return means[clusters] + random.normal(0, 0.7, 800), clusters, strata


def naive(values: Doubles, clusters: np.ndarray, strata: np.ndarray, samples: int, seed: int) -> Doubles:
    """Means of samples, by a loop over strata, sampled clusters and their rows."""
    random, means = np.random.default_rng(seed), []
    for _ in range(samples):
        sampled: list[float] = []
        for stratum in np.unique(strata):
            names = np.unique(clusters[strata == stratum])
            for name in random.choice(names, len(names)):
                sampled += values[(clusters == name) & (strata == stratum)].tolist()
        means.append(sum(sampled) / len(sampled))
    return np.array(means)


def test_clusters_within_strata_equal_a_naive_loop() -> None:
    random = np.random.default_rng(3)
    values, clusters, strata = occupations(random, 0.8)
    keep = random.random(800) < 0.7  # clusters of unlike sizes: the mean is a ratio of sums
    values, clusters, strata = values[keep], clusters[keep], strata[keep]
    ours = cluster_bootstrap(mean_rows(values), mean_of_sums, clusters, strata=strata, samples=4000)
    theirs = naive(values, clusters, strata, 1500, seed=5)
    assert ours.value == pytest.approx(values.mean())
    assert ours.deviation == pytest.approx(theirs.std(ddof=1), rel=0.07)
    level = expanded_level(20, 38)
    low, high = np.quantile(theirs, [(1 - level) / 2, (1 + level) / 2])
    assert (ours.low, ours.high) == (pytest.approx(low, abs=0.04), pytest.approx(high, abs=0.04))
    unstratified = cluster_bootstrap(mean_rows(values), mean_of_sums, clusters, samples=1000)
    assert unstratified.deviation > 1.3 * ours.deviation  # the strata differ, and are fixed


def test_rows_and_sums_are_resampled_alike_and_names_of_clusters_do_not_matter() -> None:
    values, clusters, strata = occupations(np.random.default_rng(4), 0.5)
    sums = cluster_bootstrap(mean_rows(values), mean_of_sums, clusters, strata=strata, samples=200)
    rows = cluster_bootstrap(values, lambda rows: rows.mean(), clusters, strata=strata, of="rows", samples=200)
    words = cluster_bootstrap(
        mean_rows(values), mean_of_sums, [f"{c:02}" for c in clusters], strata=strata, samples=200
    )
    assert (rows.low, rows.high) == (pytest.approx(sums.low), pytest.approx(sums.high))
    assert words == sums


def test_95_percent_intervals_cover_where_rows_of_clusters_undercover() -> None:
    """The known mean is 0; sentences of one occupation share a part of variance 0.64."""
    random, trials = np.random.default_rng(0), 200
    covered = {"clusters": 0, "rows": 0}
    for seed in range(trials):
        values, clusters, strata = occupations(random, 0.8)
        by = {
            "clusters": cluster_bootstrap(
                mean_rows(values), mean_of_sums, clusters, strata=strata, samples=400, seed=seed
            ),
            "rows": bootstrap(mean_rows(values), mean_of_sums, samples=60, seed=seed),
        }
        for name, interval in by.items():
            covered[name] += interval.low <= 0 <= interval.high
    low, high = stats.binom.interval(0.999, trials, LEVEL)
    assert low - 0.02 * trials <= covered["clusters"] <= high  # percentiles of 40 clusters cover about 94%
    assert covered["rows"] < 0.75 * trials


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (6, 12)])
def test_crossed_factors_cover_where_cells_undercover(rows: int, columns: int) -> None:
    random, trials = np.random.default_rng(rows), 200
    covered = {"crossed": 0, "cells": 0}
    for seed in range(trials):
        sentence, word = random.normal(0, 1.0, (rows, 1)), random.normal(0, 0.5, (1, columns))
        table = sentence + word + random.normal(0, 0.5, (rows, columns))
        by = {
            "crossed": crossed_mean(table, samples=400, seed=seed),
            "cells": bootstrap(mean_rows(table.ravel()), mean_of_sums, samples=60, seed=seed),
        }
        for name, interval in by.items():
            covered[name] += interval.low <= 0 <= interval.high
    assert stats.binom.interval(0.999, trials, LEVEL)[0] <= covered["crossed"] <= trials
    assert covered["cells"] < 0.75 * trials


def test_crossed_samples_equal_a_naive_loop_and_one_level_is_fixed() -> None:
    random = np.random.default_rng(8)
    table = random.normal(0, 1, (5, 1)) + random.normal(0, 1, (5, 7))
    ours, means = crossed_mean(table, samples=4000), []
    for _ in range(4000):
        rows, columns = random.integers(0, 5, 5), random.integers(0, 7, 7)
        means.append(float(np.mean([[table[i, j] for j in columns] for i in rows])))
    assert ours.deviation == pytest.approx(np.std(means, ddof=1), rel=0.07)
    one = crossed_mean(table[:1], samples=2000)
    alone = cluster_bootstrap(mean_rows(table[0]), mean_of_sums, np.arange(7), samples=2000)
    assert (one.low, one.high) == (pytest.approx(alone.low, abs=0.1), pytest.approx(alone.high, abs=0.1))
    assert math.isnan(crossed_mean([[1.0]]).low)


def test_means_of_equal_clusters_have_the_standard_error_that_scipy_gives() -> None:
    """With clusters of one size the deviation is the standard error of the cluster means, times √((n − 1) / n)."""
    random = np.random.default_rng(2)
    values = np.repeat(random.normal(0, 1, 30), 8) + random.normal(0, 0.3, 240)
    ours = cluster_bootstrap(mean_rows(values), mean_of_sums, np.repeat(np.arange(30), 8), samples=8000)
    means = values.reshape(30, 8).mean(1)
    assert ours.deviation == pytest.approx(stats.sem(means) * math.sqrt(29 / 30), rel=0.03)
    theirs = stats.bootstrap((means,), np.mean, n_resamples=8000, confidence_level=expanded_level(30, 29),
                             method="percentile", random_state=1).confidence_interval  # fmt: skip
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=0.03), pytest.approx(theirs.high, abs=0.03))
    exact = stats.t.interval(0.95, 29, means.mean(), stats.sem(means))
    assert (ours.low, ours.high) == (pytest.approx(exact[0], abs=0.05), pytest.approx(exact[1], abs=0.05))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 14, 19, 38, 101, 999, 5000])
def test_t_quantiles_equal_scipys(degrees: int) -> None:
    for level in (0.5, 0.9, 0.95, 0.99):
        assert t_quantile(level, degrees) == pytest.approx(stats.t.ppf((1 + level) / 2, degrees), rel=2e-3)
        if degrees < 1000:
            assert t_quantile(level, degrees) == pytest.approx(stats.t.ppf((1 + level) / 2, degrees), rel=1e-9)


def test_a_stratum_of_one_cluster_has_no_interval_and_shapes_must_fit() -> None:
    one = cluster_bootstrap(mean_rows([1.0, 2.0, 3.0]), mean_of_sums, ["a", "a", "b"], strata=[0, 0, 1])
    assert (one.value, math.isnan(one.low), math.isnan(one.high)) == (2.0, True, True)
    with pytest.raises(DataError, match="every one of 3 rows"):
        cluster_bootstrap(mean_rows([1.0, 2.0, 3.0]), mean_of_sums, ["a", "b"])
    with pytest.raises(DataError, match="two dimensions"):
        crossed_mean([1.0, 2.0])
