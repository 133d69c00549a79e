"""Calibration: expected calibration error, likelihood, Brier score, and the temperature that corrects probabilities.

    >>> logits, labels = [[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]], [0, 0, 0, 1]   # sure, and once wrong
    >>> temperature = fit_temperature(logits, labels)
    >>> round(temperature, 3), round(float(softmax(np.array(logits) / temperature)[0, 0]), 3)
    (3.641, 0.75)

Temperature scaling (Guo et al. 2017) divides all logits by one number, fitted on a dev set: the answer stays, the
confidence changes. Its likelihood is convex in 1 / T, so Newton's steps within a bracket find the only minimum, if
there is one: if all answers are right, T → 0, and if they are worse than chance, T → ∞. Then the temperature is
`COLDEST` or `HOTTEST`, which `at_bound` reports, and the caller decides what to do with it.

Labels are classes [n] of logits [n, K] (softmax), or truths of the shape of the logits (sigmoid: binary, multi-label).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError, UsageError

Kind = Literal["softmax", "sigmoid"]
COLDEST, HOTTEST = 1e-4, 1e4
"""Where the likeliest temperature is none of these, there is none: examples that are all right would ask for 0."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins of equal width over the confidences, the upper edge within: [bins] each."""

    edges: Doubles
    """[bins + 1]"""
    count: Ints
    confidence: Doubles
    """Mean of the bin's confidences; 0 of an empty bin, as its accuracy."""
    accuracy: Doubles

    @property
    def ece(self) -> float:
        """Expected calibration error: mean |accuracy − confidence| over answers (Naeini et al. 2015)."""
        return float(self.count @ np.abs(self.accuracy - self.confidence) / self.count.sum())


def softmax(logits: npt.ArrayLike) -> Doubles:
    """Over the last axis."""
    x = np.asarray(logits, np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def sigmoid(logits: npt.ArrayLike) -> Doubles:
    return np.asarray(0.5 * (1 + np.tanh(np.asarray(logits, np.float64) / 2)))  # no overflow on either side


def reliability(confidence: npt.ArrayLike, right: npt.ArrayLike, *, bins: int = 15) -> Reliability:
    """Reliability of predictions with their confidences, each right or wrong."""
    p, truth = np.asarray(confidence, np.float64).ravel(), np.asarray(right, np.bool_).ravel()
    if p.shape != truth.shape or not p.size:
        raise DataError(
            f"calibration needs as many confidences as answers, at least one, not {p.size} and {truth.size}"
        )
    if not (p.min() >= 0 and p.max() <= 1 + 1e-9):
        raise DataError(f"confidences are between 0 and 1, not between {p.min():g} and {p.max():g}")
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, p, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins).astype(np.int64)
    full = np.maximum(count, 1)
    return Reliability(
        edges=edges,
        count=count,
        confidence=np.bincount(place, p, bins) / full,
        accuracy=np.bincount(place, truth, bins) / full,
    )


def reliability_of_probabilities(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, kind: Kind, bins: int = 15
) -> Reliability:
    """Reliability of the likeliest class of each item, or of each yes-or-no decision at 0.5."""
    p = np.asarray(probabilities, np.float64)
    y = _checked(p, labels, kind)
    if kind == "softmax":
        return reliability(p.max(-1), p.argmax(-1) == y, bins=bins)
    return reliability(np.maximum(p, 1 - p), (p > 0.5) == (y > 0), bins=bins)


def negative_log_likelihood(logits: npt.ArrayLike, labels: npt.ArrayLike, *, kind: Kind = "softmax") -> float:
    """Mean over items, or over all yes and no."""
    x = np.asarray(logits, np.float64)
    y = _checked(x, labels, kind)
    if kind == "sigmoid":
        return float((np.logaddexp(0, x) - y * x).mean())
    shifted = x - x.max(-1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(-1)) - np.take_along_axis(shifted, y[:, None], 1)[:, 0]).mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, kind: Kind = "softmax") -> float:
    """Mean squared distance from the truth: summed over classes (0 to 2; Brier 1950), or of each yes or no (0 to 1)."""
    p = np.asarray(probabilities, np.float64)
    y = _checked(p, labels, kind)
    if kind == "sigmoid":
        return float(((p - y) ** 2).mean())
    return float(((p - (y[:, None] == np.arange(p.shape[1]))) ** 2).sum(-1).mean())


def fit_temperature(logits: npt.ArrayLike, labels: npt.ArrayLike, *, kind: Kind = "softmax") -> float:
    """The T that makes labels likeliest under softmax or sigmoid of logits / T; 1 where any T does equally well."""
    x = np.asarray(logits, np.float64)
    y = _checked(x, labels, kind)
    if not np.isfinite(x).all():
        raise DataError("a temperature is fitted to finite logits; some are not")

    def slopes(inverse: float) -> tuple[float, float]:
        """First and second derivative of the negative log-likelihood by 1 / T."""
        if kind == "sigmoid":
            p = sigmoid(inverse * x)
            return float(((p - y) * x).mean()), float((p * (1 - p) * x * x).mean())
        p = softmax(inverse * x)
        mean = (p * x).sum(-1)
        spread = (p * (x - mean[:, None]) ** 2).sum(-1)
        return float((mean - np.take_along_axis(x, y[:, None], 1)[:, 0]).mean()), float(spread.mean())

    return 1.0 / _root(slopes, 1.0 / HOTTEST, 1.0 / COLDEST)


def at_bound(temperature: float) -> bool:
    """Whether a fit ended at a bound, so that the examples have no likeliest temperature.

    >>> at_bound(fit_temperature([[5.0, 0.0], [0.0, 5.0]], [0, 1])), at_bound(1.7)
    (True, False)
    """
    return not COLDEST * 1.001 < temperature < HOTTEST / 1.001


def _root(slopes: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Where an increasing function (given with its slope) is 0, or the end nearest to that."""
    if slopes(low)[0] >= 0 and slopes(high)[0] > 0:
        return low
    if slopes(high)[0] <= 0:
        return high if slopes(low)[0] < 0 else 1.0  # logits that say nothing fit every temperature: leave them
    at = min(max(1.0, low), high)
    for _ in range(200):
        value, slope = slopes(at)
        low, high = (at, high) if value < 0 else (low, at)
        step = at - value / slope if slope > 0 else low
        following = step if low < step < high else (low + high) / 2  # bisect where Newton leaves the bracket
        if value == 0 or abs(following - at) <= 1e-12 * at:
            break
        at = following
    return at


def _checked(x: Doubles, labels: npt.ArrayLike, kind: Kind) -> Ints:
    y = np.asarray(labels).astype(np.int64)
    if kind == "softmax":
        if x.ndim != 2 or y.shape != x.shape[:1] or not y.size:
            raise DataError(f"softmax needs [n, K] and labels [n], not {x.shape} and {y.shape}")
        if y.min() < 0 or y.max() >= x.shape[1]:
            raise DataError(f"classes run from 0 to {x.shape[1] - 1}; found {y.min()} to {y.max()}")
    elif kind == "sigmoid":
        if y.shape != x.shape or not y.size:
            raise DataError(f"sigmoid needs labels of the shape of the logits, not {x.shape} and {y.shape}")
        if y.min() < 0 or y.max() > 1:
            raise DataError(f"labels of sigmoid are 0 or 1; found {y.min()} to {y.max()}")
    else:
        raise UsageError(f"kind is softmax or sigmoid, not {kind!r}")
    return y
