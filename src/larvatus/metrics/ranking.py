"""Metrics of a ranked list (nDCG, reciprocal rank, recall, average precision), and of scores against yes or no.

    DCG@k = Σ_{i ≤ k} rel_i / log2(i + 1)        nDCG@k = DCG@k / DCG@k of the best order

A list has the grade of each result of one query, best result first. nDCG uses the grades (Järvelin & Kekäläinen 2002,
with linear gains as in trec_eval); for the other metrics a result is relevant if its grade is above 0. Where relevant
texts may be missing from the results, state how many there are: `relevant`, or their grades for nDCG (`ideal`).

>>> ranked = [0, 2, 0, 1]                               # the second and the fourth result are relevant
>>> round(ndcg(ranked, 10), 4), reciprocal_rank(ranked), recall_at(ranked, 2), average_precision(ranked)
(0.6433, 0.5, 0.5, 0.5)
>>> by_score([3, 1, 2], [0.1, 0.9, 0.5])                # grades in the order of their scores
array([1., 2., 3.])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.errors import DataError

DEPTH = 10
"""Results that nDCG and MRR look at by default, as in MS MARCO and BEIR."""


def ndcg(relevance: Sequence[float], k: int, *, ideal: Sequence[float] | None = None) -> float:
    """nDCG of the first `k` results; 0 where nothing is relevant.

    Args:
        relevance: Grade of each result, best result first.
        k: How many results count.
        ideal: Grades of all relevant texts, in any order, where some may be missing from the results.
    """
    grades = _grades(relevance, k)
    best = np.sort(grades if ideal is None else _grades(ideal, k))[::-1]
    most = _gain(best[:k])
    return _gain(grades[:k]) / most if most > 0 else 0.0


def reciprocal_rank(relevance: Sequence[float], k: int | None = None) -> float:
    """1 / rank of the first relevant result among the first `k`; 0 if there is none. Its mean is the MRR."""
    hits = np.flatnonzero(_grades(relevance, k)[:k] > 0)
    return 1.0 / float(hits[0] + 1) if len(hits) else 0.0


def recall_at(relevance: Sequence[float], k: int, *, relevant: int | None = None) -> float:
    """Share of the relevant texts that are among the first `k` results; 0 where nothing is relevant."""
    hits = _grades(relevance, k) > 0
    total = _total(hits, relevant)
    return float(hits[:k].sum()) / total if total else 0.0


def average_precision(relevance: Sequence[float], k: int | None = None, *, relevant: int | None = None) -> float:
    """Mean over the relevant texts of the precision at their rank; one that was not found counts 0. Its mean is MAP."""
    hits = _grades(relevance, k) > 0
    total = _total(hits, relevant)
    precision = np.cumsum(hits[:k]) / np.arange(1, len(hits[:k]) + 1)
    return float(precision[hits[:k]].sum()) / total if total else 0.0


def by_score(relevance: npt.ArrayLike, scores: npt.ArrayLike) -> Doubles:
    """Grades in the order of their scores, highest first; of equal scores, the worse grade comes first.

    A model that scores everything alike then gets the worst it could get, not what the order of a file gives it.
    """
    grades, values = np.asarray(relevance, np.float64), np.asarray(scores, np.float64)
    if grades.shape != values.shape or grades.ndim != 1:
        raise DataError(f"a ranking needs a score for each result, not {values.shape} for {grades.shape}")
    if not np.isfinite(values).all():
        raise DataError("a score of a ranking is not a finite number")
    ordered: Doubles = grades[np.lexsort((grades, -values))]
    return ordered


def trec_order(scores: npt.ArrayLike, ids: Sequence[str], depth: int | None = None) -> list[int]:
    """Places of the `depth` best results, as trec_eval orders them: equal scores (in float32) by id, last id first.

    >>> trec_order([0.5, 0.9, 0.5], ["d1", "d2", "d3"])
    [1, 2, 0]
    """
    values = np.asarray(scores, np.float32)
    if values.shape != (len(ids),):
        raise DataError(f"a ranking needs a score for each result, not {values.shape} for {len(ids)}")
    if not np.isfinite(values).all():
        raise DataError("a score of a ranking is not a finite number")
    places = np.arange(len(ids))
    if depth is not None and depth < len(ids):
        places = np.flatnonzero(values >= np.partition(values, len(ids) - depth)[len(ids) - depth])
    by_id = sorted(places.tolist(), key=ids.__getitem__, reverse=True)
    return sorted(by_id, key=lambda place: -values[place])[:depth]


def _grades(relevance: Sequence[float], k: int | None) -> Doubles:
    grades = np.asarray(relevance, np.float64)
    if grades.ndim != 1:
        raise DataError(f"a ranking is one list of grades, not an array of {grades.ndim} dimensions")
    if k is not None and k < 1:
        raise DataError(f"a ranking is cut after 1 result or more, not {k}")
    if not np.isfinite(grades).all() or (grades < 0).any():
        raise DataError("a grade of relevance is a finite number, 0 or more")
    return grades


def _gain(grades: Doubles) -> float:
    return float((grades / np.log2(np.arange(2, len(grades) + 2))).sum())


def _total(hits: npt.NDArray[np.bool_], relevant: int | None) -> int:
    returned = int(hits.sum())
    if relevant is not None and relevant < returned:
        raise DataError(f"{returned} relevant results were found, more than the {relevant} that there are")
    return returned if relevant is None else relevant


def average_precision_of_scores(scores: npt.ArrayLike, matches: npt.ArrayLike) -> float:
    """Average precision of pairs that match or not; NaN if nothing matches.

        AP = Σ_t (R_t − R_{t−1}) P_t      over the distinct scores t, highest first: recall and precision of scores ≥ t

    Equal scores are taken together, so the order of a file never counts (as in scikit-learn, and unlike
    `average_precision` of a ranked list).

    >>> scores, matches = [0.9, 0.8, 0.8, 0.1], [1, 0, 1, 0]
    >>> round(average_precision_of_scores(scores, matches), 4), best_accuracy(scores, matches)
    (0.8333, 0.75)
    """
    right, answered, total = _above(scores, matches)
    if not total:
        return float("nan")
    recall = right / total
    return float((np.diff(recall, prepend=0.0) * right / answered).sum())


def best_accuracy(scores: npt.ArrayLike, matches: npt.ArrayLike) -> float:
    """Accuracy with the threshold that fits the same pairs best; one above all scores answers no to every pair.

    It describes the scores, and is too high for a threshold that would be used on other pairs.
    """
    right, answered, total = _above(scores, matches)
    count = int(answered[-1])
    false = answered - right
    return float(max((count - total) / count, ((right + (count - total) - false) / count).max()))


def _above(scores: npt.ArrayLike, matches: npt.ArrayLike) -> tuple[Ints, Ints, int]:
    """For each distinct score, highest first: matches and pairs at or above it; and all matches."""
    values: Doubles = np.asarray(scores, np.float64)
    truth: Bools = np.asarray(matches).astype(np.bool_)
    if values.shape != truth.shape or values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise DataError(f"pairs need a finite score and a truth value each, not {values.shape} and {truth.shape}")
    order = np.argsort(-values, kind="stable")
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    right: Ints = np.cumsum(truth[order].astype(np.int64))[last]
    answered: Ints = last.astype(np.int64) + 1
    return right, answered, int(truth.sum())
