"""Intervals of audits: the units that are resampled, means with a bootstrap interval, and how tables print them.

    >>> resampled(OCCUPATIONS)
    '95% intervals: occupations resampled, separately for each stereotype'

Reports, tables, JSON and cards state the unit. Rows that share a unit (sentences about one occupation) are not
independent evidence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.bootstrap import CHUNK, Interval, percentiles

PAIRS = "sentence pairs"
TERMS = "target terms"
OCCUPATIONS = "occupations, separately for each stereotype"
TARGETS = "target words, separately for each set"
TEXTS = "texts"
PROMPTS = "prompts"
TEMPLATES = "templates that both groups have"
DOCUMENTS = "documents"
CANARIES = "canaries"


def template_unit(sentences: int, words: int) -> str:
    """The resampled factors; a factor with one level is fixed.

    >>> template_unit(6, 6), template_unit(1, 6)
    ('sentences × attribute words', 'attribute words; one sentence, fixed')
    """
    if sentences == 1:
        return "attribute words; one sentence, fixed"
    return "sentences; one attribute word, fixed" if words == 1 else "sentences × attribute words"


def resampled(unit: str) -> str:
    """A line below a table that states the unit."""
    what, how = (unit, "") if (end := re.search("[,;]", unit)) is None else (unit[: end.start()], unit[end.start() :])
    return f"95% intervals: {what} resampled{how}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def between(low: float | None, high: float | None, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval as printed in tables.

    >>> between(0.4812, 0.5301), between(0.1, 0.25, digits=1, times=100)
    ('0.481–0.530', '10.0–25.0')
    """
    return "–" if low is None or high is None else f"{times * low:.{digits}f}–{times * high:.{digits}f}"


def signed_between(low: float, high: float, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval of a difference: ``−1.2 to +3.4``."""
    return f"{times * low:+.{digits}f} to {times * high:+.{digits}f}"


def spread_note(what: str, values: Sequence[float], *, digits: int = 3, times: float = 1.0, sign: str = "") -> str:
    """A note on how a figure varies over samples of documents.

    >>> spread_note("AUC by loss", [0.52, 0.55, 0.531])
    'AUC by loss in 3 samples of training documents: 0.520 to 0.550 (0.520, 0.550, 0.531)'
    """
    said = [f"{times * value:{sign}.{digits}f}" for value in values]
    low, high = (f"{times * end(values):{sign}.{digits}f}" for end in (min, max))
    return f"{what} in {len(said)} samples of training documents: {low} to {high} ({', '.join(said)})"


SAMPLES = 1_000


def mean_interval(values: Doubles, seed: int) -> Interval:
    """The mean with its 95% percentile interval, by sampling values with replacement in large arrays.

    An audit needs an interval for every group of prompts and canaries. `metrics/bootstrap.py` makes a random stream for
    every sample, which takes most of the time for a dozen values.

    >>> rough = mean_interval(np.array([0.0, 1.0] * 50), seed=0)
    >>> rough.value, 0.38 < rough.low < 0.45, 0.55 < rough.high < 0.62
    (0.5, True, True)
    """
    random, size = stream(seed, "audit bootstrap"), len(values)
    at_once = max(1, CHUNK // size)
    parts = []
    for begin in range(0, SAMPLES, at_once):
        drawn = random.integers(0, size, (min(at_once, SAMPLES - begin), size))
        parts.append(values[drawn].mean(1))
    means = np.concatenate(parts)
    low, high = percentiles(means, 0.95)
    return Interval(float(values.mean()), low, high, float(means.std(ddof=1)), SAMPLES)
