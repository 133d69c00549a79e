"""The frequency effect (Zhou et al. 2022): cosine underestimates the similarity of instances of frequent words.

For words from every range of frequency: the mean cosine between their instances (Ethayarajh's self-similarity),
against the logarithm of their frequency. If it falls with frequency, cosine underestimates the similarity of frequent
words, standardised or not.

    chosen = choose_words(portion, seed=0)       # some words of each range of frequency that occur twice
    words = RunningWords(chosen, layers, size)   # sums of their unit vectors
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.metrics.isotropy import mean_pair_cosine
from larvatus.metrics.ranking import pearson, spearman

A_BIN = 100
"""Most words of each range."""
STEPS = 2
"""Ranges per factor of ten: 1 to 3.16, 3.16 to 10, …"""


class FrequencyBin(msgspec.Struct, frozen=True, kw_only=True):
    """Words of a range of frequencies."""

    low: float
    """Occurrences in the counted text, from …"""
    high: float
    """… to below."""
    words: int
    instances: int
    similarity: float
    """Mean over words of the mean cosine between a word's instances."""


class FrequencyEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Frequency effect in one layer."""

    words: int
    pearson: float
    """Correlation of self-similarity with the logarithm of frequency, over words."""
    spearman: float
    bins: tuple[FrequencyBin, ...]


def word_key(word: str) -> str | None:
    """Key under which words are the same; None for numbers and punctuation."""
    return word.casefold() if word.isalpha() else None


def choose_words(portion: Mapping[str, int], frequency: Mapping[str, int], *, seed: int) -> list[str]:
    """Words that occur at least twice in the portion, at most `A_BIN` of each range of frequency, at random."""
    ranges: dict[int, list[str]] = {}
    for word in sorted(portion):
        if portion[word] >= 2:
            ranges.setdefault(_range(frequency[word]), []).append(word)
    chosen: list[str] = []
    for number, words in sorted(ranges.items()):
        order = stream(seed, "frequency effect", item=number).permutation(len(words))[:A_BIN]
        chosen += [words[index] for index in sorted(order.tolist())]
    return chosen


def _range(count: int) -> int:
    return int(np.floor(STEPS * np.log10(count) + 1e-9))


class RunningWords:
    """Running sums of unit vectors of chosen words."""

    def __init__(self, words: Sequence[str], layers: int, size: int) -> None:
        self._index = {word: number for number, word in enumerate(words)}
        self._sums = np.zeros((len(words), layers, size), dtype=np.float32)
        self._counts = np.zeros(len(words), dtype=np.int64)

    def add(self, words: Sequence[str], u_LND: Doubles) -> None:
        for place, word in enumerate(words):
            number = self._index.get(word_key(word) or "")
            if number is not None:
                self._sums[number] += u_LND[:, place]
                self._counts[number] += 1

    def effect(self, layer: int, frequency: Counter[str]) -> FrequencyEffect | None:
        """The effect in a layer; None if fewer than two words occur twice."""
        kept = [(word, number) for word, number in self._index.items() if self._counts[number] >= 2]
        if len(kept) < 2:
            return None
        numbers = np.array([number for _, number in kept])
        similarity = np.array(
            [mean_pair_cosine(self._sums[n, layer].astype(np.float64), int(self._counts[n])) for n in numbers]
        )
        counts = np.array([frequency[word] for word, _ in kept])
        ranges = np.array([_range(count) for count in counts.tolist()])
        logs = np.log10(counts)
        bins = tuple(
            FrequencyBin(
                low=10 ** (low / STEPS),
                high=10 ** (high / STEPS),
                words=int(in_range.sum()),
                instances=int(self._counts[numbers[in_range]].sum()),
                similarity=float(similarity[in_range].mean()),
            )
            for low, high in pairwise(range(int(ranges.min()), int(ranges.max()) + 2))
            if (in_range := ranges == low).any()
        )
        return FrequencyEffect(
            words=len(kept), pearson=pearson(logs, similarity), spearman=spearman(logs, similarity), bins=bins
        )
