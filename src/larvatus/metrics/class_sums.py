"""What each example adds to the counts of classes, and scores of summed counts: what resampling wants.

Accuracy, F1 and Matthews correlation depend on three counts of each class alone: rightly predicted, predicted, gold.
Summed over any sample of examples [3, K], they give the score of that sample; over many [R, 3, K], all scores at once.

    >>> rows = class_sums([0, 1, 1, 2], [0, 1, 2, 2], classes=3)        # [4, 3, 3]
    >>> round(float(macro_f1(rows.sum(0))), 4)
    0.7778
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.metrics.classification import ClassCounts, divide

ScoreOfSums = Callable[[Doubles], Doubles]
"""[…, 3, K] → […]"""


def class_sums(gold: npt.ArrayLike, predicted: npt.ArrayLike, *, classes: int) -> Doubles:
    """[items, 3, classes] of items that have one class each."""
    a, b = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"scores want as many predictions as labels, not {a.shape} and {b.shape}")
    return multi_label_sums(_one_hot(a, classes), _one_hot(b, classes))


def multi_label_sums(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> Doubles:
    """[items, 3, labels] of tables of truth [items, labels]: several labels at once."""
    a, b = np.asarray(gold, np.bool_), np.asarray(predicted, np.bool_)
    return np.stack([a & b, b, a], axis=1).astype(np.float64)


def sums_of_counts(counts: ClassCounts) -> Doubles:
    """[texts, 3, types] of counts [texts, types], such as those of `entity_counts`."""
    return np.stack([counts.right, counts.predicted, counts.gold], axis=1).astype(np.float64)


def _one_hot(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    return np.asarray(classes[:, None] == np.arange(count))


def accuracy(sums: Doubles) -> Doubles:
    """Of items that have one class each."""
    return divide(sums[..., 0, :].sum(-1), sums[..., 2, :].sum(-1))


def micro_f1(sums: Doubles) -> Doubles:
    return _f1(sums.sum(-1, keepdims=True))[..., 0]


def macro_f1(sums: Doubles) -> Doubles:
    """Over the classes that occur in the sample."""
    occurs = sums[..., 1, :] + sums[..., 2, :] > 0
    return divide(_f1(sums).sum(-1), occurs.sum(-1))


def weighted_f1(sums: Doubles) -> Doubles:
    return divide((_f1(sums) * sums[..., 2, :]).sum(-1), sums[..., 2, :].sum(-1))


def f1_of(positive: int) -> ScoreOfSums:
    """F1 of one class."""
    return lambda sums: _f1(sums)[..., positive]


def matthews(sums: Doubles) -> Doubles:
    """Of items that have one class each."""
    right, predicted, gold = sums[..., 0, :].sum(-1), sums[..., 1, :], sums[..., 2, :]
    total = gold.sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1))
    return divide(right * total - (gold * predicted).sum(-1), np.sqrt(spread))


def _f1(sums: Doubles) -> Doubles:
    return divide(2 * sums[..., 0, :], sums[..., 1, :] + sums[..., 2, :])
