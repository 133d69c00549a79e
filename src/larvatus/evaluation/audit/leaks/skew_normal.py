"""Probability of a score beyond all sampled scores: the tail of a skew-normal distribution fitted to the sample.

    >>> scores = np.random.default_rng(0).normal(size=2000)
    >>> abs(log2_tail(scores, 3.0) - math.log2(0.00135)) < 1.0
    True

Scores of random secrets are sums of a few log-probabilities, which are nearly normal but skewed; Carlini et al. (2019,
§4.3) found that this family fits them. The fit uses the first three moments (Azzalini 1985):

    δ² = π/2 · |γ|^(2/3) / (|γ|^(2/3) + ((4 − π)/2)^(2/3)),   ω² = σ² / (1 − 2δ²/π),   ξ = μ − ωδ √(2/π)
"""

from __future__ import annotations

import math

import numpy as np

from larvatus.core.arrays import Doubles

_MOST_SKEWED = 0.99
"""Largest skewness that is fitted; the family has none of 0.9953 or more."""
_STEPS = 4_000


def log2_tail(scores: Doubles, score: float) -> float:
    """log2 P(X ≥ score) of the distribution fitted to the scores."""
    deviation = float(scores.std())
    if deviation == 0.0:
        return 0.0 if score <= scores[0] else -math.inf
    mean = float(scores.mean())
    skewness = float((((scores - mean) / deviation) ** 3).mean())
    power = min(abs(skewness), _MOST_SKEWED) ** (2 / 3)
    delta = math.copysign(math.sqrt(math.pi / 2 * power / (power + ((4 - math.pi) / 2) ** (2 / 3))), skewness)
    scale = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
    place = mean - scale * delta * math.sqrt(2 / math.pi)
    slant = delta / math.sqrt(1 - delta**2)
    z = (score - place) / scale
    grid = np.linspace(z, max(z, 0.0) + 12.0, _STEPS)
    logs = np.array([_log_density(x, slant) for x in grid.tolist()])
    top = float(logs.max())
    total = float(np.trapezoid(np.exp(logs - top), grid))
    return min(0.0, (top + math.log(total)) / math.log(2))


def _log_density(x: float, slant: float) -> float:
    """log 2 φ(x) Φ(slant · x)."""
    return math.log(2) - x * x / 2 - math.log(2 * math.pi) / 2 + _log_below(slant * x)


def _log_below(x: float) -> float:
    """log Φ(x), accurate far into the tail."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi))
