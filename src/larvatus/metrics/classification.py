"""Scores of classes against labels (accuracy, F1, Matthews, word senses), and of clusters (V-measure).

    >>> table = confusion([0, 1, 1, 2], [0, 1, 2, 2], classes=3)
    >>> table.tolist()                                           # rows: gold, columns: predicted
    [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    >>> round(average(f1_by_class(table), "macro").f1, 4)
    0.7778
    >>> best_threshold([0.1, 0.4, 0.6, 0.9], [False, False, True, True])        # two classes by one number
    0.5
    >>> score = sense_f1({"t1": ["art%1:09:00::"], "t2": ["a%1:03:00::", "a%1:03:01::"]}, {"t2": ["a%1:03:01::"]})
    >>> (score.precision, score.recall, round(score.f1, 3))
    (1.0, 0.5, 0.667)
    >>> round(v_measure(["a", "a", "b", "b"], [0, 0, 1, 2]), 4)
    0.8

**Classes.** Everything follows from the confusion matrix, or for several labels at once from counts of each label, so
that evaluation keeps counts. A share of nothing is 0, as scikit-learn's with `zero_division=0`. A threshold is the one
with the highest accuracy on a training part.

**Word senses**, as in the scorer of the unified evaluation framework (Raganato et al. 2017; SemEval-2015 task 13). An
answer is right if it is one of the gold keys; a system that gives several for a word earns the share of them that is
right. Precision is over the words that were answered, recall over all; answers to words without a gold key do not
count.

**V-measure** of clusters against labels (Rosenberg & Hirschberg 2007), with an interval over documents and seeds:

    V = 2 h c / (h + c)        h = 1 − H(label | cluster) / H(label)        c = 1 − H(cluster | label) / H(cluster)

h is high if clusters hold one label each, c if labels are in one cluster each. V is not corrected for chance: many
small clusters of few documents score above 0 by themselves.

A bootstrap would overstate V, because each sample repeats documents and repeats agree with themselves. The interval is
that of the jackknife (Tukey 1958) over documents, V without document i for each i, and of Student's t over the seeds of
the clustering, whose variances add.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.metrics.intervals import NORMAL_95, Interval, t_quantile

Average = Literal["macro", "micro", "weighted"]


@dataclass(frozen=True)
class F1:
    precision: float
    recall: float
    f1: float
    support: int
    """Gold items."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """[K] of each class or label: correctly predicted, predicted, gold."""

    right: Ints
    predicted: Ints
    gold: Ints

    @property
    def precision(self) -> Doubles:
        return divide(self.right, self.predicted)

    @property
    def recall(self) -> Doubles:
        return divide(self.right, self.gold)

    @property
    def f1(self) -> Doubles:
        return divide(2 * self.right, self.predicted + self.gold)

    def of(self, index: int) -> F1:
        """Binary F1 with one class as the positive one."""
        return F1(float(self.precision[index]), float(self.recall[index]), float(self.f1[index]), int(self.gold[index]))


def divide(part: npt.ArrayLike, whole: npt.ArrayLike) -> Doubles:
    """Shares; 0 of nothing."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    shares = np.zeros(np.broadcast_shapes(part.shape, whole.shape))
    np.divide(part, whole, out=shares, where=whole != 0)
    return shares


def confusion(gold: npt.ArrayLike, predicted: npt.ArrayLike, *, classes: int) -> Ints:
    """[classes, classes] how often each gold class (row) was predicted as each class (column)."""
    a, b = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"a confusion matrix needs as many predictions as labels, not {a.shape} and {b.shape}")
    if a.size and (min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= classes):
        raise DataError(
            f"classes run from 0 to {classes - 1}; found {min(a.min(), b.min())} to {max(a.max(), b.max())}"
        )
    return np.bincount(a * classes + b, minlength=classes * classes).astype(np.int64).reshape(classes, classes)


def accuracy_of(table: Ints) -> float:
    """Share of the diagonal."""
    return float(divide(np.trace(table), table.sum()))


def f1_by_class(table: Ints) -> ClassCounts:
    return ClassCounts(right=np.diagonal(table), predicted=table.sum(0), gold=table.sum(1))


def average(counts: ClassCounts, how: Average) -> F1:
    """Over the classes that occur, in gold or predictions: with equal weights (macro), by support (weighted), or of the
    summed counts (micro, which equals accuracy if every item has one class and one prediction)."""
    if how == "micro":
        summed = (np.array([each.sum()]) for each in (counts.right, counts.predicted, counts.gold))
        return ClassCounts(*summed).of(0)
    return _mean(counts, counts.gold + counts.predicted > 0 if how == "macro" else counts.gold)


def _mean(counts: ClassCounts, weights: npt.ArrayLike) -> F1:
    shares = divide(weights, np.sum(weights))
    precision, recall, f1 = (float(shares @ each) for each in (counts.precision, counts.recall, counts.f1))
    return F1(precision, recall, f1, int(counts.gold.sum()))


def matthews(table: Ints) -> float:
    """Matthews correlation, for two classes or more (Gorodkin 2004); 0 if gold or predictions never vary.

    >>> round(matthews(np.array([[2, 1], [0, 3]])), 4)
    0.7071
    """
    counts = table.astype(np.float64)
    gold, predicted, total = counts.sum(1), counts.sum(0), counts.sum()
    spread = math.sqrt(total**2 - predicted @ predicted) * math.sqrt(total**2 - gold @ gold)
    return float((np.trace(counts) * total - gold @ predicted) / spread) if spread else 0.0


@dataclass(frozen=True, eq=False)
class MultiLabel:
    """Scores of items with any number of labels each."""

    counts: ClassCounts
    exact_match: float
    """Share of items whose labels are all right (subset accuracy)."""
    hamming: float
    """Share of wrong decisions, over all items and labels (Hamming loss)."""

    @property
    def micro(self) -> F1:
        return average(self.counts, "micro")

    @property
    def macro(self) -> F1:
        """Over all labels, including those that never occur."""
        return _mean(self.counts, np.ones(len(self.counts.gold)))

    @property
    def weighted(self) -> F1:
        return average(self.counts, "weighted")


def multi_label(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> MultiLabel:
    """Scores of two boolean tables [items, labels]."""
    a, b = np.asarray(gold, np.bool_), np.asarray(predicted, np.bool_)
    if a.shape != b.shape or a.ndim != 2 or not a.size:
        raise DataError(f"multi-label scores need two tables of items by labels, not {a.shape} and {b.shape}")
    counts = ClassCounts(right=(a & b).sum(0), predicted=b.sum(0), gold=a.sum(0))
    return MultiLabel(counts, exact_match=float((a == b).all(1).mean()), hamming=float((a != b).mean()))


def best_threshold(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The threshold above which the answer is yes: midway between neighbouring scores; of equally good ones the lowest.

    With −inf every answer is yes, with inf no.
    """
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    if x.shape != y.shape or x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise DataError(f"a threshold needs as many finite scores as labels, not {x.shape} and {y.shape}")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    # cut k: the first k are answered no
    right = np.concatenate([[0], np.cumsum(~y)]) + np.concatenate([[0], np.cumsum(y[::-1])])[::-1]
    possible = np.concatenate([[True], x[1:] > x[:-1], [True]])  # equal scores cannot be separated
    cut = int(np.argmax(np.where(possible, right, -1)))
    if cut in (0, len(x)):
        return -np.inf if cut == 0 else np.inf
    low, high = float(x[cut - 1]), float(x[cut])
    middle = low + (high - low) / 2
    return middle if middle < high else low


def accuracy(predicted: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of equal entries."""
    a, b = np.asarray(predicted), np.asarray(labels)
    if a.shape != b.shape or not a.size:
        raise DataError(f"accuracy needs as many predictions as labels, at least one, not {a.shape} and {b.shape}")
    return float((a == b).mean())


@dataclass(frozen=True)
class SenseScore:
    right: float
    """Words answered correctly; a fraction if several answers were given."""
    answered: int
    total: int

    @property
    def precision(self) -> float:
        return self.right / self.answered if self.answered else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.total if self.total else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def sense_f1(gold: Mapping[str, Collection[str]], answers: Mapping[str, Collection[str]]) -> SenseScore:
    """The score of a system's keys for each word, by its id, against those of annotators."""
    right, answered = 0.0, 0
    for name, given in answers.items():
        if name not in gold or not given:
            continue
        keys = set(given)
        answered += 1
        right += len(keys & set(gold[name])) / len(keys)
    return SenseScore(right, answered, len(gold))


# Clusters.


def v_measure(labels: Sequence[Any] | npt.NDArray[Any], clusters: Sequence[Any] | npt.NDArray[Any]) -> float:
    """V of a clustering of documents with labels."""
    return float(_v(*_sums(_table(labels, clusters))))


def v_measure_interval(
    labels: Sequence[Any] | npt.NDArray[Any], clusterings: Sequence[Sequence[Any] | npt.NDArray[Any]]
) -> Interval:
    """Mean V of the clusterings of several seeds, with its 95% interval; of one seed, over documents only."""
    values = np.array([v_measure(labels, clusters) for clusters in clusterings])
    without_NS = np.stack([_without_each(labels, clusters) for clusters in clusterings], axis=1)
    without_N, count = without_NS.mean(1), len(without_NS)
    of_documents = (count - 1) / count * float(((without_N - without_N.mean()) ** 2).sum())
    of_seeds, reach = 0.0, 0.0
    if len(values) > 1:
        of_seeds = float(values.var(ddof=1)) / len(values)
        reach = t_quantile(0.95, len(values) - 1)
    half = math.sqrt(NORMAL_95**2 * of_documents + reach**2 * of_seeds)
    value = float(values.mean())
    return Interval(value, max(0.0, value - half), min(1.0, value + half), math.sqrt(of_documents + of_seeds), count)


def _table(labels: Any, clusters: Any) -> Ints:
    """[labels, clusters] documents."""
    rows, columns = (np.unique(np.asarray(names), return_inverse=True)[1].reshape(-1) for names in (labels, clusters))
    if len(rows) != len(columns) or len(rows) < 2:
        raise DataError(
            f"V-measure needs a label and a cluster of 2 documents or more, not {len(rows)}, {len(columns)}"
        )
    table: Ints = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _sums(table: Ints) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """n, and Σ n log n over cells, labels and clusters: all that V depends on."""
    return np.float64(table.sum()), _nlogn(table).sum(), _nlogn(table.sum(1)).sum(), _nlogn(table.sum(0)).sum()  # type: ignore[return-value]


def _nlogn(counts: Any) -> Doubles:
    values = np.asarray(counts, np.float64)
    products: Doubles = values * np.log(np.where(values > 0, values, 1.0))
    return products


def _v(total: Any, cells: Any, labels: Any, clusters: Any) -> Doubles:
    """V from the sums: H(label) = log n − Σ n_l log n_l / n, and so on."""
    of_label = np.log(total) - labels / total
    of_cluster = np.log(total) - clusters / total
    both = np.log(total) - cells / total
    shared = np.maximum(of_label + of_cluster - both, 0.0)
    homogeneity = np.where(of_label > 1e-12, shared / np.maximum(of_label, 1e-12), 1.0)
    completeness = np.where(of_cluster > 1e-12, shared / np.maximum(of_cluster, 1e-12), 1.0)
    whole = homogeneity + completeness
    v: Doubles = np.where(whole > 1e-12, 2 * homogeneity * completeness / np.maximum(whole, 1e-12), 0.0)
    return v


def _without_each(labels: Any, clusters: Any) -> Doubles:
    """[N] V without each document: documents of one cell give the same."""
    table = _table(labels, clusters)
    total, cells, by_label, by_cluster = _sums(table)

    def less(counts: Ints) -> Doubles:
        """What Σ n log n loses where a count becomes one less."""
        loss: Doubles = _nlogn(counts) - _nlogn(np.maximum(counts - 1, 0))
        return loss

    rows, columns = (np.unique(np.asarray(names), return_inverse=True)[1].reshape(-1) for names in (labels, clusters))
    of_cell = _v(
        total - 1,
        cells - less(table),
        by_label - less(table.sum(1))[:, None],
        by_cluster - less(table.sum(0))[None, :],
    )
    without: Doubles = of_cell[rows, columns]
    return without
