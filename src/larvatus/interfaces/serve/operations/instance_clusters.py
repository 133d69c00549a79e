"""Clusters of a few word instances: those whose vectors point the same way.

    clusters(unit_vectors)                  # [N] 0, 1, … by size, the largest first

Agglomerative, by the mean cosine between clusters (Sokal & Michener 1958), for as many clusters as are asked for; else
for the number whose silhouette (Rousseeuw 1987) is best, or one cluster where none is worthwhile. Made for what people
type, some dozens of texts: maps of a corpus cluster by k-means (`inference/maps/clusters.py`), which wants many more.

>>> clusters(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [1.0, 0.1]])).tolist()
[0, 0, 1, 1, 0]
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.inference.maps.clusters import MOST, WORTHWHILE, by_size


def clusters(vectors: Doubles, count: int | None = None) -> Ints:
    """[N, D] → [N]."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    apart_NN = np.clip(1 - unit @ unit.T, 0.0, 2.0)
    np.fill_diagonal(apart_NN, 0.0)
    most = min(MOST, len(vectors) - 1) if count is None else min(count, len(vectors))
    by_count = _merged(apart_NN, most)
    if count is not None:
        return by_size(by_count[most])
    scores = {k: _silhouette(apart_NN, numbers) for k, numbers in by_count.items() if k > 1}
    best = max(scores, key=lambda k: (scores[k], -k), default=1)
    if best == 1 or scores[best] < WORTHWHILE:
        return np.zeros(len(vectors), np.int64)
    return by_size(by_count[best])


def _merged(apart_NN: Doubles, most: int) -> dict[int, Ints]:
    """The clusters for each number of them up to `most`: the two nearest are merged, again and again."""
    numbers = np.arange(len(apart_NN))
    sizes = np.ones(len(apart_NN))
    apart = apart_NN.copy()
    np.fill_diagonal(apart, np.inf)
    by_count = {}
    for count in range(len(numbers), 0, -1):
        if count <= max(1, most):
            by_count[count] = numbers.copy()
        if count > 1:
            a, b = sorted(np.unravel_index(int(apart.argmin()), apart.shape))
            mean = (sizes[a] * apart[a] + sizes[b] * apart[b]) / (sizes[a] + sizes[b])
            apart[a], apart[:, a] = mean, mean
            apart[b], apart[:, b], apart[a, a] = np.inf, np.inf, np.inf
            sizes[a] += sizes[b]
            numbers[numbers == b] = a
    return by_count


def _silhouette(apart_NN: Doubles, numbers: Ints) -> float:
    """The mean over instances of how much nearer its cluster is than the next; 0 for one that is alone."""
    names = np.unique(numbers)
    member_NK = (numbers[:, None] == names).astype(np.float64)
    sums_NK, counts_K = apart_NN @ member_NK, member_NK.sum(0)
    inside = member_NK.astype(bool)
    others = counts_K[inside.argmax(1)] - 1
    within = sums_NK[inside] / np.maximum(others, 1)
    beside = np.where(inside, np.inf, sums_NK / counts_K).min(1)
    scores = np.where(others > 0, (beside - within) / np.maximum(np.maximum(beside, within), 1e-12), 0.0)
    return float(scores.mean())
