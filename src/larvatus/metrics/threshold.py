"""Two classes by one number: the threshold that gets most of a training part right, and accuracy.

>>> best_threshold([0.1, 0.4, 0.6, 0.9], [False, False, True, True])
0.5
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import DataError


def best_threshold(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Say yes where score > threshold: midway between neighbouring scores; of equally good ones the lowest.

    −inf says yes to everything, inf no.
    """
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    if x.shape != y.shape or x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise DataError(f"a threshold wants as many finite scores as labels, not {x.shape} and {y.shape}")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    # cut k: the first k are said no
    right = np.concatenate([[0], np.cumsum(~y)]) + np.concatenate([[0], np.cumsum(y[::-1])])[::-1]
    possible = np.concatenate([[True], x[1:] > x[:-1], [True]])  # equal scores cannot be told apart
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
        raise DataError(f"accuracy wants as many predictions as labels, at least one, not {a.shape} and {b.shape}")
    return float((a == b).mean())
