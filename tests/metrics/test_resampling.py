"""Bootstrap and paired tests: against loops, scipy and known answers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.metrics.classification import ClassCounts, average, confusion, f1_by_class
from larvatus.metrics.classification import accuracy_of as accuracy_of_table
from larvatus.metrics.classification import matthews as matthews_of_table
from larvatus.metrics.entities import entity_counts
from larvatus.metrics.intervals import bootstrap, mcnemar, paired_bootstrap, randomisation
from larvatus.metrics.ranking import spearman
from larvatus.tasks.evaluation import resampling as sums


def answers(seed: int, count: int, classes: int = 3, skill: float = 0.6):
    random = stream(seed, "test answers")
    gold = random.integers(0, classes, count)
    guess = np.where(random.random(count) < skill, gold, random.integers(0, classes, count))
    return gold, guess


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), count=st.integers(1, 30), classes=st.integers(1, 4))
def test_scores_of_sums_equal_those_of_the_confusion_matrix(seed, count, classes):
    gold, guess = answers(seed, count, classes)
    table = confusion(gold, guess, classes=classes)
    total = sums.class_sums(gold, guess, classes=classes).sum(0)
    counts = f1_by_class(table)
    assert_allclose(sums.accuracy(total), accuracy_of_table(table))
    assert_allclose(sums.micro_f1(total), average(counts, "micro").f1)
    assert_allclose(sums.macro_f1(total), average(counts, "macro").f1)
    assert_allclose(sums.f1_of(0)(total), counts.of(0).f1)
    assert_allclose(sums.matthews(total), matthews_of_table(table), atol=1e-12)


@pytest.mark.parametrize("score", [sums.accuracy, sums.macro_f1, sums.matthews])
def test_all_samples_at_once_equal_one_sample_after_the_other(score):
    gold, guess = answers(1, 40)
    rows = sums.class_sums(gold, guess, classes=3)
    at_once = bootstrap(rows, score, samples=50, seed=4)
    one_by_one = bootstrap(rows, lambda drawn: score(drawn.sum(0)), of="rows", samples=50, seed=4)
    for name in ("value", "low", "high", "deviation"):
        assert_allclose(getattr(at_once, name), getattr(one_by_one, name))
    assert bootstrap(rows, score, samples=50, seed=5) != at_once


def test_tables_of_weights_cut_in_pieces_or_not_kept_give_the_same(monkeypatch):
    rows = sums.class_sums(*answers(1, 40), classes=3)
    whole = bootstrap(rows, sums.macro_f1, samples=30)
    monkeypatch.setattr("larvatus.metrics.intervals.CHUNK", 100)
    assert bootstrap(rows, sums.macro_f1, samples=30) == whole
    monkeypatch.setattr("larvatus.metrics.intervals.KEPT", 0)
    assert bootstrap(rows, sums.macro_f1, samples=30) == whole


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = stream(2, "test values").normal(3, 2, 200)
    ours = bootstrap(values[:, None], lambda total: total[..., 0] / 200, samples=4000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(0)
    )
    assert_allclose((ours.low, ours.high), theirs.confidence_interval, atol=0.03)
    assert_allclose(ours.deviation, values.std() / math.sqrt(200), rtol=0.05)


def test_intervals_of_a_rank_correlation_and_of_entities():
    random = stream(3, "test ranks")
    gold = random.normal(size=60)
    rows = np.stack([gold, gold + random.normal(size=60)], axis=1)
    found = bootstrap(rows, lambda drawn: spearman(drawn[:, 0], drawn[:, 1]), of="rows", samples=200)
    assert found.low < found.value == spearman(*rows.T) < found.high
    _, counts = entity_counts([[(0, 1, "A")], [(0, 1, "B")], []], [[(0, 1, "A")], [(0, 2, "B")], [(3, 4, "A")]])
    found = bootstrap(sums.sums_of_counts(counts), sums.micro_f1, samples=100)
    assert (found.value, found.low, found.high) == (0.4, 0.0, 1.0)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_several_labels_at_once_give_the_same_counts(seed):
    gold, guess = stream(seed, "test labels").random((2, 9, 3)) < 0.4
    total = sums.multi_label_sums(gold, guess).sum(0).astype(np.int64)
    wanted = ClassCounts(right=(gold & guess).sum(0), predicted=guess.sum(0), gold=gold.sum(0))
    assert_allclose(sums.micro_f1(total), average(wanted, "micro").f1)


@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_equals_the_binomial_test(pairs):
    a, b = np.array(pairs).T
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    wanted = scipy.stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert_allclose(mcnemar(a, b), wanted)


def test_mcnemar_of_many_examples_neither_overflows_nor_vanishes():
    a = np.arange(20_000) < 10_100
    assert_allclose(mcnemar(a, ~a), scipy.stats.binomtest(10_100, 20_000).pvalue)


def test_randomisation_comes_near_the_test_of_all_swaps():
    random = stream(4, "test swaps")
    a, b = random.random(10), random.random(10) + 0.25
    observed = abs(b.mean() - a.mean())
    exact = np.mean(
        [abs(np.mean((b - a) * signs)) >= observed - 1e-12 for signs in itertools.product([1, -1], repeat=10)]
    )
    found = randomisation(a[:, None], b[:, None], lambda total: total[..., 0] / 10, samples=5000)
    assert_allclose(found.p, exact, atol=0.02)
    assert_allclose((found.first, found.second, found.difference), (a.mean(), b.mean(), b.mean() - a.mean()))


@pytest.mark.parametrize("test", [paired_bootstrap, randomisation])
def test_scores_of_sums_and_of_rows_give_the_same_p(test):
    gold, guess = answers(5, 50)
    _, other = answers(6, 50)
    a, b = (sums.class_sums(gold, each, classes=3) for each in (guess, other))
    at_once = test(a, b, sums.macro_f1, samples=60)
    one_by_one = test(a, b, lambda rows: sums.macro_f1(rows.sum(0)), of="rows", samples=60)
    assert_allclose((at_once.p, at_once.difference), (one_by_one.p, one_by_one.difference))


@pytest.mark.parametrize("test", [pytest.param(paired_bootstrap, marks=pytest.mark.proof), randomisation])
def test_p_values_of_equal_systems_are_spread_evenly_and_those_of_unequal_ones_are_small(test):
    found = []
    for seed in range(150):
        gold, guess = answers(seed, 80)
        other = np.where(stream(seed, "test other").random(80) < 0.7, guess, (gold + 1) % 3)
        swap = stream(seed, "test null").random(80) < 0.5  # which system gives which answer is chance
        a, b = np.where(swap, guess, other), np.where(swap, other, guess)
        rows = [sums.class_sums(gold, each, classes=3) for each in (a, b)]
        found.append(test(*rows, sums.macro_f1, samples=200, seed=seed).p)
    for level in (0.1, 0.3, 0.5):
        assert abs(np.mean(np.array(found) <= level) - level) < 0.12
    gold, weak = answers(1, 300, skill=0.3)
    _, strong = answers(1, 300, skill=0.8)
    found = test(*(sums.class_sums(gold, each, classes=3) for each in (weak, strong)), sums.accuracy, samples=300)
    assert found.p == 1 / 301
    assert found.difference > 0
    if found.low is not None:
        assert 0 < found.low < found.difference < found.high


def test_a_system_does_not_differ_from_itself():
    gold, guess = answers(1, 30)
    rows = sums.class_sums(gold, guess, classes=3)
    for test in (paired_bootstrap, randomisation):
        found = test(rows, rows, sums.macro_f1, samples=20)
        assert (found.difference, found.p) == (0.0, 1.0)
    assert mcnemar(gold == guess, gold == guess) == 1.0


def test_what_cannot_be_resampled_is_refused():
    with pytest.raises(DataError, match="no examples"):
        bootstrap([], lambda total: total)
    with pytest.raises(UsageError, match="level between 0 and 1"):
        bootstrap([[1.0]], lambda total: total[..., 0], level=95)
    with pytest.raises(DataError, match="same examples"):
        paired_bootstrap([[1.0]], [[1.0], [2.0]], lambda total: total[..., 0])
    with pytest.raises(DataError, match="same examples"):
        mcnemar([True], [True, False])
    with pytest.raises(DataError, match="as many predictions as labels"):
        sums.class_sums([0], [0, 1], classes=2)


def test_samples_without_a_score_are_left_out():
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 1.0]])
    found = bootstrap(rows, lambda drawn: spearman(drawn[:, 0], drawn[:, 1]), of="rows", samples=40)
    assert (found.value, found.low, found.high) == (-1.0, -1.0, -1.0)
    never = bootstrap(rows[:1], lambda drawn: np.nan, of="rows", samples=4)
    assert math.isnan(never.low)
    assert math.isnan(never.deviation)
