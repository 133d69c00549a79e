"""Metrics of ranked lists, of scores that separate yes from no, and correlations of values and ranks.

    >>> ranked = [0, 2, 0, 1]                               # the second and the fourth result are relevant
    >>> round(ndcg(ranked, 10), 4), reciprocal_rank(ranked), recall_at(ranked, 2), average_precision(ranked)
    (0.6433, 0.5, 0.5, 0.5)
    >>> by_score([3, 1, 2], [0.1, 0.9, 0.5])                # grades in the order of their scores
    array([1., 2., 3.])
    >>> members, others = np.array([3.0, 2.0, 2.0]), np.array([1.0, 2.0, 0.0])
    >>> round(area(members, others), 4)                       # (3 + 2 + 2 of 3 each, a tie counts half) / 9
    0.8889
    >>> round(spearman([1, 2, 3, 4], [1, 4, 9, 16]), 6)
    1.0

**Ranked lists.** A list has the grade of each result of one query, best result first. nDCG uses the grades (Järvelin &
Kekäläinen 2002, with linear gains as in trec_eval); for the other metrics a result is relevant if its grade is above 0.
Where relevant texts may be missing from the results, state how many there are: `relevant`, or their grades for nDCG
(`ideal`).

    DCG@k = Σ_{i ≤ k} rel_i / log2(i + 1)        nDCG@k = DCG@k / DCG@k of the best order

**ROC curve** of a score that separates two sets, its area, and true positives at few false ones. The area is the
probability that a member has a higher score than another (Hanley & McNeil 1982): 0.5 at chance. An average hides what
matters for privacy, whether *some* members are identified with certainty, so the share of members above a threshold
that hardly any other passes is reported too (Carlini et al. 2022, *Membership inference attacks from first
principles*).

**Correlations**: Pearson's r of values, Spearman's ρ of ranks (ties share their mean rank).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.intervals import Interval, percentile_interval

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


# The ROC curve.

RATES = (0.01, 0.001)
"""False positives at which true ones are counted."""


@dataclass(frozen=True)
class TruePositivesAtRate:
    """Members above the threshold that at most a share `rate` of the others passes."""

    rate: float
    threshold: float | None
    """None if there are too few others for so small a rate: 1,000 for 0.1%."""
    caught: int = 0
    total: int = 0
    share: float | None = None
    low: float | None = None
    high: float | None = None
    """95% interval, exact, at this threshold."""
    false_high: float | None = None
    """Upper end of the 95% interval of the false positives that pass the threshold."""


@dataclass(frozen=True)
class RocCurve:
    """A score on members and others."""

    area: Interval
    caught: tuple[TruePositivesAtRate, ...]
    points: tuple[tuple[float, float], ...]
    """(false positives, true positives), some of them, from (0, 0) to (1, 1)."""

    @property
    def tells(self) -> bool:
        """Whether the interval of the area is above 0.5. One below shows nothing: a rule that was fitted on other folds
        of the same texts falls below 0.5 if there is nothing to learn."""
        return self.area.low > 0.5

    def to_dict(self) -> dict[str, Any]:
        return {
            "auc": self.area.value,
            "low": self.area.low,
            "high": self.area.high,
            "at": [vars(each) for each in self.caught],
            "roc": [list(point) for point in self.points],
        }


def curve(members: Doubles, others: Doubles, *, samples: int = 1000, seed: int = 0) -> RocCurve:
    """Members and others are resampled separately; a percentile interval of the area."""
    if not len(members) or not len(others):
        raise DataError("a ROC curve needs members and others; there are none of one kind")
    interval = percentile_interval(area(members, others), _resampled_areas(members, others, samples, seed), 0.95)
    return RocCurve(interval, tuple(caught(members, others, rate) for rate in RATES), points(members, others))


def _resampled_areas(members: Doubles, others: Doubles, samples: int, seed: int) -> Doubles:
    """The scores are sorted once, for all samples."""
    values, places = np.unique(np.concatenate([members, others]), return_inverse=True)
    of_members, of_others = places[: len(members)], places[len(members) :]
    areas, random = np.empty(samples), stream(seed, "roc bootstrap")
    for sample in range(samples):
        drawn = of_members[random.integers(0, len(members), len(members))]
        counts = np.bincount(of_others[random.integers(0, len(others), len(others))], minlength=len(values))
        below = counts.cumsum() - counts / 2  # ties count half
        areas[sample] = below[drawn].mean() / len(others)
    return areas


def area(members: Doubles, others: Doubles) -> float:
    """P(member above other) + P(tie) / 2, by ranks."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, side="left")
    tied = np.searchsorted(ordered, members, side="right") - below
    return float((below + tied / 2).mean() / len(others))


def caught(members: Doubles, others: Doubles, rate: float) -> TruePositivesAtRate:
    """A score passes if it is above the threshold, not equal to it."""
    allowed = int(rate * len(others) + 1e-9)
    if not allowed:
        return TruePositivesAtRate(rate, None)
    threshold = float(np.sort(others)[::-1][allowed])
    count, total, passed = int((members > threshold).sum()), len(members), int((others > threshold).sum())
    low, high = clopper_pearson(count, total)
    return TruePositivesAtRate(
        rate, threshold, count, total, count / total, low, high, clopper_pearson(passed, len(others))[1]
    )


def points(members: Doubles, others: Doubles, count: int = 200) -> tuple[tuple[float, float], ...]:
    """The curve at `count` thresholds at most, evenly among those where it has a corner."""
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    chosen = thresholds[np.unique(np.linspace(0, len(thresholds) - 1, count).astype(np.int64))]
    true = 1 - np.searchsorted(np.sort(members), chosen, side="left") / len(members)
    false = 1 - np.searchsorted(np.sort(others), chosen, side="left") / len(others)
    return ((0.0, 0.0), *zip(false.tolist(), true.tolist(), strict=True))


# Correlations.


def pearson(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """NaN if one side never varies."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise DataError(f"a correlation needs two lists of the same length, 2 or more, not {x.shape} and {y.shape}")
    if (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    return pearson(ranks(a), ranks(b))


def spearman_interval(value: float, pairs: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95% interval of ρ over `pairs` pairs (Bonett & Wright 2000): Fisher's z with variance (1 + ρ²/2) / (n − 3).

    >>> [round(end, 3) for end in spearman_interval(0.7, 2_003)]
    [0.674, 0.724]
    """
    if not math.isfinite(value) or pairs < 4 or abs(value) == 1:
        return math.nan, math.nan
    half = z * math.sqrt((1 + value * value / 2) / (pairs - 3))
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def ranks(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 for the smallest; equal values share the mean of their ranks.

    >>> ranks([10, 30, 10, 20]).tolist()
    [1.5, 4.0, 1.5, 3.0]
    """
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse.reshape(-1)]
    return means
