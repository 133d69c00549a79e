"""How well a score separates pairs that match from others: average precision and the best accuracy.

    AP = Σ_t (R_t − R_{t−1}) P_t        over the distinct scores t, highest first: recall and precision of scores ≥ t

    >>> scores, matches = [0.9, 0.8, 0.8, 0.1], [1, 0, 1, 0]
    >>> round(average_precision_of_scores(scores, matches), 4), best_accuracy(scores, matches)
    (0.8333, 0.75)

Equal scores are taken together, so the order of a file never counts (as in scikit-learn, and unlike AP of a ranked
list, `ranking.py`). The best accuracy is that of the threshold that fits the same pairs best: it describes the scores,
and is too high for a threshold that would be used on other pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.errors import DataError


def average_precision_of_scores(scores: npt.ArrayLike, matches: npt.ArrayLike) -> float:
    """Average precision; NaN if nothing matches."""
    right, answered, total = _above(scores, matches)
    if not total:
        return float("nan")
    recall = right / total
    return float((np.diff(recall, prepend=0.0) * right / answered).sum())


def best_accuracy(scores: npt.ArrayLike, matches: npt.ArrayLike) -> float:
    """Accuracy with the best threshold; one above all scores answers no to every pair."""
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
