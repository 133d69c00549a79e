"""Association of two sets of targets with two sets of attributes (WEAT, Caliskan et al. 2017).

    s(w) = mean_a cos(w, a) − mean_b cos(w, b)                      how much nearer a target is to A than to B
    d = (mean_x s(x) − mean_y s(y)) / deviation of s over X ∪ Y     the effect size, between −2 and 2

    >>> rows = associations(np.eye(2), np.eye(2)[:1], np.eye(2)[1:])
    >>> rows.tolist()
    [1.0, -1.0]
    >>> round(effect_size([1.0, 0.9], [-1.0, -0.9]), 2), permutation_p([1.0, 0.9], [-1.0, -0.9]).one_sided
    (1.73, 0.16666666666666666)

The p-value is of the permutation test over equal-sized partitions of the targets: how often another partition has as
large a difference. All partitions are tried where there are not too many, else a random sample of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.paired import ROUNDING

EXACT = 20_000
"""Partitions that are all tried."""


@dataclass(frozen=True)
class PermutationP:
    one_sided: float
    """As published: another partition has as large a difference, in the same direction."""
    two_sided: float
    """In either direction."""
    partitions: int
    exact: bool
    """Whether all partitions were tried."""


def associations(targets: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """[T] how much nearer each target [T, D] is to the first attributes [A, D] than to the second [B, D]."""
    w, a, b = (_unit(np.asarray(vectors, np.float64)) for vectors in (targets, first, second))
    scores: Doubles = (w @ a.T).mean(1) - (w @ b.T).mean(1)
    return scores


def effect_size(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Effect size of the associations of two sets of targets; NaN if all are equal."""
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    deviation = np.concatenate([first, second]).std(ddof=1)
    return float((first.mean() - second.mean()) / deviation) if deviation > ROUNDING else math.nan


def permutation_p(x: npt.ArrayLike, y: npt.ArrayLike, *, samples: int = 10_000, seed: int = 0) -> PermutationP:
    """How often a partition of the targets into sets of these sizes has as large a difference of means."""
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    together = np.concatenate([first, second])
    size, count = len(first), len(together)
    partitions = math.comb(count, size)
    if partitions <= EXACT:
        chosen = np.array(list(combinations(range(count), size)))
    else:
        draws = stream(seed, "permutation test")
        chosen = np.stack([draws.permutation(count)[:size] for _ in range(samples)])
    sums = together[chosen].sum(1)
    differences = sums / size - (together.sum() - sums) / (count - size)
    observed = first.mean() - second.mean()
    above = int((differences >= observed - ROUNDING).sum())
    beyond = int((np.abs(differences) >= abs(observed) - ROUNDING).sum())
    if partitions <= EXACT:  # the partition observed is among them
        return PermutationP(above / partitions, beyond / partitions, partitions, True)
    return PermutationP((above + 1) / (samples + 1), (beyond + 1) / (samples + 1), samples, False)


def _unit(vectors: Doubles) -> Doubles:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Doubles = vectors / np.maximum(norms, 1e-12)
    return unit
