"""Metrics of rankings against naive loops and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from larvatus.core.errors import DataError
from larvatus.metrics.ranking import average_precision, by_score, ndcg, recall_at, reciprocal_rank, trec_order

grades = st.lists(st.integers(0, 3), min_size=1, max_size=20)


def naive_ndcg(relevance, k, ideal):
    gain = sum(grade / math.log2(place + 1) for place, grade in enumerate(relevance[:k], start=1))
    best = sum(grade / math.log2(place + 1) for place, grade in enumerate(sorted(ideal, reverse=True)[:k], start=1))
    return gain / best if best else 0.0


@given(relevance=grades, missing=st.lists(st.integers(0, 3), max_size=5), k=st.integers(1, 25))
def test_each_metric_equals_a_naive_loop(relevance, missing, k):
    assert ndcg(relevance, k) == pytest.approx(naive_ndcg(relevance, k, relevance), abs=1e-12)
    everything = relevance + missing
    assert ndcg(relevance, k, ideal=everything) == pytest.approx(naive_ndcg(relevance, k, everything), abs=1e-12)
    first = next((place for place, grade in enumerate(relevance[:k], start=1) if grade), None)
    assert reciprocal_rank(relevance, k) == (0 if first is None else 1 / first)
    total = sum(grade > 0 for grade in everything)
    found = sum(grade > 0 for grade in relevance[:k])
    assert recall_at(relevance, k, relevant=total) == (found / total if total else 0)
    precisions = []
    for place, grade in enumerate(relevance[:k], start=1):
        if grade:
            precisions.append(sum(other > 0 for other in relevance[:place]) / place)
    expected = sum(precisions) / total if total else 0
    assert average_precision(relevance, k, relevant=total) == pytest.approx(expected, abs=1e-12)


@given(relevance=st.lists(st.integers(0, 3), min_size=2, max_size=20), seed=st.integers(0, 99))
def test_they_equal_those_of_scikit_learn(relevance, seed):
    scores = np.random.default_rng(seed).permutation(len(relevance)).astype(float)
    ranked = by_score(relevance, scores)
    assert ndcg(ranked, 5) == pytest.approx(ndcg_score([relevance], [scores], k=5), abs=1e-12)
    binary = [int(grade > 0) for grade in relevance]
    if any(binary):
        assert average_precision(ranked) == pytest.approx(average_precision_score(binary, scores), abs=1e-12)


def test_equal_scores_never_flatter():
    assert by_score([1, 0, 2, 0], [0.5, 0.5, 0.5, 0.7]).tolist() == [0, 0, 1, 2]
    assert reciprocal_rank(by_score([1, 0, 0], [0, 0, 0])) == pytest.approx(1 / 3)


def test_nothing_relevant_is_worth_nothing():
    assert ndcg([0, 0], 10) == reciprocal_rank([0, 0]) == recall_at([0, 0], 1) == average_precision([0, 0]) == 0
    assert ndcg([], 10, ideal=[1]) == recall_at([], 5, relevant=2) == 0


def test_what_is_no_ranking_is_refused():
    for wrong in ([-1.0], [math.nan]):
        with pytest.raises(DataError, match="a grade of relevance"):
            ndcg(wrong, 10)
    with pytest.raises(DataError, match="1 result or more"):
        recall_at([1], 0)
    with pytest.raises(DataError, match="more than the 1"):
        recall_at([1, 1], 2, relevant=1)
    with pytest.raises(DataError, match="one list of grades"):
        ndcg([[1.0]], 10)
    with pytest.raises(DataError, match="a score for each result"):
        by_score([1, 2], [0.5])
    with pytest.raises(DataError, match="not a finite number"):
        by_score([1], [math.nan])


scored = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=25)


@given(scored=scored, depth=st.integers(1, 30), seed=st.integers(0, 99))
def test_ties_are_ordered_by_id_last_first(scored, depth, seed):
    scores = [score / 7 for score, _ in scored]
    ids = [f"d{number}" for number in np.random.default_rng(seed).permutation(len(scored))]
    naive = sorted(range(len(ids)), key=lambda place: (np.float32(scores[place]), ids[place]), reverse=True)
    assert trec_order(scores, ids, depth) == naive[:depth]
    assert trec_order(scores, ids) == naive


@given(scored=scored, seed=st.integers(0, 99))
def test_metrics_equal_those_of_trec_eval_where_scores_are_tied(scored, seed):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    ids = [f"d{number}" for number in np.random.default_rng(seed).permutation(len(scored))]
    relevance = {id: grade for id, (_, grade) in zip(ids, scored, strict=True)}
    run = {id: score / 7 for id, (score, _) in zip(ids, scored, strict=True)}
    measures = {"ndcg_cut_10", "recip_rank", "recall_10", "map"}
    theirs = pytrec_eval.RelevanceEvaluator({"q": relevance}, measures).evaluate({"q": run})["q"]
    ranked = [relevance[ids[place]] for place in trec_order([run[id] for id in ids], ids)]
    ours = (ndcg(ranked, 10), reciprocal_rank(ranked), recall_at(ranked, 10), average_precision(ranked))
    assert ours == pytest.approx([theirs[name] for name in ("ndcg_cut_10", "recip_rank", "recall_10", "map")])


def test_an_order_needs_a_finite_score_of_each():
    with pytest.raises(DataError, match="a score for each result"):
        trec_order([1.0], ["a", "b"])
    with pytest.raises(DataError, match="not a finite number"):
        trec_order([1.0, math.nan], ["a", "b"])
