"""Documents drawn at random from text of any length, the same ones for the same seed, in one reading.

texts = drawn_texts(read_documents(["in.jsonl"]), most=1_000, words=100, seed=0)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from larvatus.audit.masked_loss import first_words
from larvatus.rng import random_bits
from larvatus.text.documents import Document


@dataclass(frozen=True)
class DrawnTexts:
    texts: tuple[str, ...]
    """The first words of each drawn document, in the order of the source; each text once."""
    documents: int
    """Long enough to be drawn."""
    short: int
    """Documents with too few words."""


def drawn_texts(documents: Iterable[Document], *, most: int, words: int, seed: int) -> DrawnTexts:
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
    return DrawnTexts(tuple(text for _, _, text in sorted(heap, key=lambda entry: -entry[1])), count, short)
