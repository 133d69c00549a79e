"""V-measure of clusters against labels (Rosenberg & Hirschberg 2007), with an interval over documents and seeds.

    V = 2 h c / (h + c)        h = 1 − H(label | cluster) / H(label)        c = 1 − H(cluster | label) / H(cluster)

    >>> round(v_measure(["a", "a", "b", "b"], [0, 0, 1, 2]), 4)
    0.8

h is high if clusters hold one label each, c if labels are in one cluster each. V is not corrected for chance: many
small clusters of few documents score above 0 by themselves.

A bootstrap would overstate V, because each sample repeats documents and repeats agree with themselves. The interval is
that of the jackknife (Tukey 1958) over documents, V without document i for each i, and of Student's t over the seeds of
the clustering, whose variances add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.student_t import NORMAL_95, t_quantile


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
