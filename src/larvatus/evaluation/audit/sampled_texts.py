"""Documents sampled at random in one pass over text of any length; the seed determines the sample.

texts = sample_texts(read_documents(["in.jsonl"]), most=1_000, words=100, seed=0)
texts = sample_texts(read_documents(["in.jsonl"]), most=5 * 250, words=100, seed=0)
texts.split(5)                                       # the sample, of five with 250 each, that each text belongs to
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.rng import random_bits
from larvatus.data.text.documents import Document
from larvatus.evaluation.audit.masked_loss import first_words


@dataclass(frozen=True)
class SampledTexts:
    texts: tuple[str, ...]
    """First words of each sampled document, in the order of the source, without duplicates."""
    documents: int
    """Number of documents that are long enough."""
    short: int
    """Number of documents with too few words."""
    order: tuple[int, ...] = ()
    """Rank of each text in the random order of sampling."""

    def split(self, draws: int) -> Ints:
        """[texts] the sample that each text belongs to: disjoint random samples of nearly equal size."""
        ranks = np.array(self.order, np.int64)
        return ranks * draws // max(1, len(ranks))


def sample_texts(documents: Iterable[Document], *, most: int, words: int, seed: int) -> SampledTexts:
    """Sample up to `most` documents; the sample depends on the seed and on the number of each document."""
    heap: list[tuple[int, int, str]] = []
    numbers = np.empty(1, np.int64)
    count = short = 0
    seen: set[int] = set()
    for number, document in enumerate(documents):
        text = first_words(document.text, words)
        if text is None:
            short += 1
            continue
        if hash(text) in seen:
            continue
        seen.add(hash(text))
        count += 1
        numbers[0] = number
        key = int(random_bits(seed, "audit documents", items=numbers, draws=np.zeros(1, np.int64))[0, 0])
        entry = (-key, -number, text)
        if len(heap) < most:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    kept = sorted(heap, key=lambda entry: -entry[1])
    rank = {entry[1]: number for number, entry in enumerate(sorted(heap, reverse=True))}
    return SampledTexts(tuple(text for _, _, text in kept), count, short, tuple(rank[entry[1]] for entry in kept))
