"""Means with a bootstrap interval, sampled in large arrays.

    >>> values = np.array([0.0, 1.0] * 50)
    >>> rough = mean_interval(values, seed=0)
    >>> rough.value, 0.38 < rough.low < 0.45, 0.55 < rough.high < 0.62
    (0.5, True, True)

An audit needs an interval for every group of prompts and canaries. `metrics/bootstrap.py` makes a random stream for
every sample, which takes most of the time for a dozen values.
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.bootstrap import CHUNK, Interval, percentiles

SAMPLES = 1_000


def mean_interval(values: Doubles, seed: int) -> Interval:
    """The mean with its 95% percentile interval, by sampling values with replacement."""
    random, size = stream(seed, "audit bootstrap"), len(values)
    at_once = max(1, CHUNK // size)
    parts = []
    for begin in range(0, SAMPLES, at_once):
        drawn = random.integers(0, size, (min(at_once, SAMPLES - begin), size))
        parts.append(values[drawn].mean(1))
    means = np.concatenate(parts)
    low, high = percentiles(means, 0.95)
    return Interval(float(values.mean()), low, high, float(means.std(ddof=1)), SAMPLES)
