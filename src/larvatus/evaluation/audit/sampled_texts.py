"""Documents drawn at random from text of any length, the same ones for the same seed, in one reading.

texts = drawn_texts(read_documents(["in.jsonl"]), most=1_000, words=100, seed=0)
texts = drawn_texts(read_documents(["in.jsonl"]), most=5 * 250, words=100, seed=0)
texts.split(5)                                       # which of five samples of 250 each text belongs to
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
    """The first words of each drawn document, in the order of the source; each text once."""
    documents: int
    """Long enough to be drawn."""
    short: int
    """Documents with too few words."""
    order: tuple[int, ...] = ()
    """Rank of each text in the random order by which documents were sampled."""

    def split(self, draws: int) -> Ints:
        """[texts] number of the sample that each text belongs to: random samples of nearly equal size, each text in
        one of them."""
        ranks = np.array(self.order, np.int64)
        return ranks * draws // max(1, len(ranks))


def sample_texts(documents: Iterable[Document], *, most: int, words: int, seed: int) -> SampledTexts:
    """Which are drawn is a function of the seed and of each document's number."""
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
