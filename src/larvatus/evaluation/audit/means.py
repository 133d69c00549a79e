"""Means with a bootstrap interval, all samples drawn at once.

    >>> values = np.array([0.0, 1.0] * 50)
    >>> rough = mean_interval(values, seed=0)
    >>> rough.value, 0.38 < rough.low < 0.45, 0.55 < rough.high < 0.62
    (0.5, True, True)

An audit has an interval for every group of prompts and of canaries; `metrics/bootstrap.py` makes a stream of random
numbers for every sample, which for a dozen values is most of the time.
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.bootstrap import CHUNK, Interval, percentiles

SAMPLES = 1_000


def mean_interval(values: Doubles, seed: int) -> Interval:
    """95%, percentile; values are drawn with replacement, as many as there are."""
    random, size = stream(seed, "audit bootstrap"), len(values)
    at_once = max(1, CHUNK // size)
    parts = []
    for begin in range(0, SAMPLES, at_once):
        drawn = random.integers(0, size, (min(at_once, SAMPLES - begin), size))
        parts.append(values[drawn].mean(1))
    means = np.concatenate(parts)
    low, high = percentiles(means, 0.95)
    return Interval(float(values.mean()), low, high, float(means.std(ddof=1)), SAMPLES)
