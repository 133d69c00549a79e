"""Scores of coreference clusters: MUC, B³, CEAF-φ4, LEA and mentions, as sums over documents.

    counts = coreference_counts(gold, predicted)                 # of one document: [5 metrics, 4 sums]
    coreference_f1(sum_of_counts)[MUC]

A cluster is a set of mentions; a mention is in one cluster at most. Of a gold cluster c, with the predicted clusters f
that share |c ∩ f| mentions with it, recall is (precision exchanges gold and predicted):

    MUC      Σ (|c| − parts of c) / Σ (|c| − 1), a mention that is not predicted being a part (Vilain et al. 1995)
    B³       Σ Σ_f |c ∩ f|² / |c|  /  Σ |c| (Bagga & Baldwin 1998)
    CEAF-φ4  best one-to-one assignment of Σ 2 |c ∩ f| / (|c| + |f|)  /  number of clusters (Luo 2005)
    LEA      Σ |c| (links of c in predicted clusters / links of c)  /  Σ |c| (Moosavi & Strube 2016); the one link of a
             cluster of one mention is in a predicted cluster of only this mention
    mentions Σ |mentions that are predicted| / Σ |c|

The assignment of CEAF is that with the largest sum (Kuhn 1955; shortest augmenting paths, Jonker & Volgenant 1987):

    >>> largest_assignment(np.array([[1.0, 3.0], [2.0, 3.5]]))
    5.0

The CoNLL score is the mean F1 of the first three (Pradhan et al. 2012). All sums are over the clusters of all
documents, as in the reference scorer, so documents can be resampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.metrics.classification import divide


def largest_assignment(weights: Doubles) -> float:
    """The largest sum of weights [R, C], none negative, with at most one in each row and column."""
    wide = weights if weights.shape[0] <= weights.shape[1] else weights.T
    if not wide.size:
        return 0.0
    columns = match_rows(-wide)
    return float(wide[np.arange(len(wide)), columns].sum())


def match_rows(costs: Doubles) -> Ints:
    """[R] the column of each row such that the sum of costs [R, C] is smallest; R ≤ C.

    Rows are added one by one. Each finds the shortest path, by costs less the potentials of its row and column, over
    rows that are matched already to a column that is free; the rows on the path then change columns.
    """
    count, size = costs.shape
    row_potential, column_potential = np.zeros(count), np.zeros(size + 1)
    matched = np.full(size + 1, -1)  # row of each column; the last column is where a path begins
    for row in range(count):
        matched[size] = row
        distance, before = np.full(size, np.inf), np.full(size, size)
        reached = np.zeros(size + 1, np.bool_)
        column = size
        while matched[column] >= 0:
            reached[column] = True
            at = matched[column]
            reduced = costs[at] - row_potential[at] - column_potential[:size]
            shorter = ~reached[:size] & (reduced < distance)
            distance[shorter], before[shorter] = reduced[shorter], column
            free = np.where(reached[:size], np.inf, distance)
            nearest = int(free.argmin())
            step = free[nearest]
            row_potential[matched[reached]] += step
            column_potential[reached] -= step
            distance[~reached[:size]] -= step
            column = nearest
        while column != size:
            matched[column] = matched[before[column]]
            column = int(before[column])
    columns = np.empty(count, np.int64)
    taken = np.flatnonzero(matched[:size] >= 0)
    columns[matched[taken]] = taken
    return columns


# Scores of clusters.

Clusters = Sequence[Sequence[Hashable]]
METRICS = ("muc", "b3", "ceafe", "lea", "mention")
OF_CONLL = 3
"""The first metrics, whose mean is the CoNLL score."""


def without_singletons(clusters: Clusters) -> list[Sequence[Hashable]]:
    """The clusters of two mentions or more."""
    return [cluster for cluster in clusters if len(cluster) > 1]


def coreference_counts(gold: Clusters, predicted: Clusters) -> Doubles:
    """[metrics, 4] of one document: sum and total of recall, sum and total of precision."""
    owner = {mention: number for number, cluster in enumerate(predicted) for mention in cluster}
    shared: Counter[tuple[int, int]] = Counter(
        (number, owner[mention]) for number, cluster in enumerate(gold) for mention in cluster if mention in owner
    )
    golds, answers = [len(cluster) for cluster in gold], [len(cluster) for cluster in predicted]
    turned = Counter({(b, a): count for (a, b), count in shared.items()})
    recall, precision = _one_side(shared, golds, answers), _one_side(turned, answers, golds)
    similar = _similarity(shared, golds, answers)
    recall[METRICS.index("ceafe")] = similar, len(gold)
    precision[METRICS.index("ceafe")] = similar, len(predicted)
    return np.concatenate([recall, precision], axis=1)


def coreference_f1(sums: Doubles) -> Doubles:
    """F1 of each metric: […, metrics, 4] → […, metrics]; 0 where there is nothing to find and nothing predicted."""
    recall, precision = divide(sums[..., 0], sums[..., 1]), divide(sums[..., 2], sums[..., 3])
    return divide(2 * recall * precision, recall + precision)


def conll_score(sums: Doubles) -> Doubles:
    """Mean F1 of MUC, B³ and CEAF-φ4: […, metrics, 4] → […]."""
    return np.asarray(coreference_f1(sums)[..., :OF_CONLL].mean(-1))


def _one_side(shared: Counter[tuple[int, int]], sizes: Sequence[int], others: Sequence[int]) -> Doubles:
    """[metrics, 2] sum and total of the clusters of one side; those of CEAF are left open."""
    muc = b3 = lea = mentions = 0.0
    linked = np.zeros(len(sizes))
    for (a, b), count in shared.items():
        size = sizes[a]
        muc += count - 1
        mentions += count
        b3 += count * count / size
        linked[a] += count * (count - 1) / 2 if size > 1 else float(others[b] == 1)
    for size, links in zip(sizes, linked.tolist(), strict=True):
        lea += size * links / max(size * (size - 1) / 2, 1)
    total = float(sum(sizes))
    return np.array([[muc, total - len(sizes)], [b3, total], [0, 0], [lea, total], [mentions, total]])


def _similarity(shared: Counter[tuple[int, int]], golds: Sequence[int], answers: Sequence[int]) -> float:
    """The best assignment by φ4, component by component: most clusters share mentions with few others."""
    total = 0.0
    for edges in _components(shared):
        rows = {a: number for number, a in enumerate(sorted({a for a, _ in edges}))}
        columns = {b: number for number, b in enumerate(sorted({b for _, b in edges}))}
        table = np.zeros((len(rows), len(columns)))
        for a, b in edges:
            table[rows[a], columns[b]] = 2 * shared[a, b] / (golds[a] + answers[b])
        total += largest_assignment(table)
    return total


def _components(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Pairs that are connected with each other by their members."""
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def root(node: tuple[int, int]) -> tuple[int, int]:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    known = list(pairs)
    for a, b in known:
        parent[root((0, a))] = root((1, b))
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in known:
        groups.setdefault(root((0, a)), []).append((a, b))
    return list(groups.values())
