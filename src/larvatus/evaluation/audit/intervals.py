"""95% intervals of audits: the resampled unit, bootstrap intervals of means, and how tables print intervals.

The bootstrap resamples *units*, such as occupations, with all rows of a unit together. Rows that share a unit (the
sentences about one occupation) are not independent, so resampling rows would make intervals too narrow. Every table,
report, JSON file and model card states the unit:

    >>> resampled(OCCUPATIONS)
    '95% intervals: occupations resampled, separately for each stereotype'
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.intervals import CHUNK, Interval, percentiles

# units: the noun in the plural; text after a comma or semicolon says how they are resampled
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
    """The unit of a template audit, which fills each of its sentences with each of its attribute words.

    Sentences and attribute words are both resampled. One that has only one value cannot be, and is held fixed.

    >>> template_unit(6, 6), template_unit(1, 6)
    ('sentences × attribute words', 'attribute words; one sentence, fixed')
    """
    if sentences == 1:
        return "attribute words; one sentence, fixed"
    return "sentences; one attribute word, fixed" if words == 1 else "sentences × attribute words"


def resampled(unit: str) -> str:
    """The note below a table that states the resampled unit."""
    end = re.search("[,;]", unit)
    noun, how = (unit, "") if end is None else (unit[: end.start()], unit[end.start() :])
    return f"95% intervals: {noun} resampled{how}"


def percent(share: float | None) -> str:
    """A share from 0 to 1 as a percentage with one decimal; a dash if it is undefined."""
    return "–" if share is None else f"{share:.1%}"


def between(low: float | None, high: float | None, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval as tables print it, multiplied by `times` (100 for percent); a dash if an end is undefined.

    >>> between(0.4812, 0.5301), between(0.1, 0.25, digits=1, times=100)
    ('0.481–0.530', '10.0–25.0')
    """
    return "–" if low is None or high is None else f"{times * low:.{digits}f}–{times * high:.{digits}f}"


def signed_between(low: float, high: float, *, digits: int = 3, times: float = 1.0) -> str:
    """The interval of a difference as tables print it, with signs.

    >>> signed_between(-0.012, 0.034, digits=1, times=100)
    '-1.2 to +3.4'
    """
    return f"{times * low:+.{digits}f} to {times * high:+.{digits}f}"


def spread_note(what: str, values: Sequence[float], *, digits: int = 3, times: float = 1.0, sign: str = "") -> str:
    """A note on how a figure varies between samples of training documents: its range, then all values.

    `times` multiplies the values (100 for percent), and `sign` "+" prints the sign of positive values.

    >>> spread_note("AUC by loss", [0.52, 0.55, 0.531])
    'AUC by loss in 3 samples of training documents: 0.520 to 0.550 (0.520, 0.550, 0.531)'
    """
    formatted = [f"{times * value:{sign}.{digits}f}" for value in values]
    low, high = (f"{times * end(values):{sign}.{digits}f}" for end in (min, max))
    return f"{what} in {len(formatted)} samples of training documents: {low} to {high} ({', '.join(formatted)})"


SAMPLES = 1_000
"""Bootstrap samples of `mean_interval`."""


def mean_interval(values: Doubles, seed: int) -> Interval:
    """The mean of values [n], one for each unit, with its 95% percentile-bootstrap interval.

    All samples come from one random stream, in large arrays. `metrics.bootstrap.bootstrap` makes one stream for each
    sample, which is slow for the many small groups of prompts and canaries of an audit.

    >>> accuracy = mean_interval(np.array([0.0, 1.0] * 50), seed=0)
    >>> accuracy.value, 0.38 < accuracy.low < 0.45, 0.55 < accuracy.high < 0.62
    (0.5, True, True)
    """
    random, size = stream(seed, "audit bootstrap"), len(values)
    samples_at_once = max(1, CHUNK // size)  # limits memory
    parts = []
    for begin in range(0, SAMPLES, samples_at_once):
        chosen = random.integers(0, size, (min(samples_at_once, SAMPLES - begin), size))  # [samples, n]
        parts.append(values[chosen].mean(1))
    means = np.concatenate(parts)
    low, high = percentiles(means, 0.95)
    return Interval(float(values.mean()), low, high, float(means.std(ddof=1)), SAMPLES)
