"""Many sequences of random words, for laws that need a large sample."""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges, ranges
from larvatus.core.rng import stream


def random_words(
    purpose: str, count: int, words: int, *, cls: int, sep: int, ids: tuple[int, int]
) -> TrainingBatch[Ints]:
    """``[CLS] words [SEP]`` with words of one or two pieces, whose ids are in [first, last)."""
    draw = stream(2, purpose)
    sizes = draw.choice([1, 1, 1, 2], size=(count, words + 2))
    sizes[:, [0, -1]] = 1
    lengths = sizes.sum(1)
    names = np.tile(np.concatenate([[-1], np.arange(words), [-1]]), (count, 1))
    flat = draw.integers(*ids, size=int(lengths.sum()))
    edge = edges(lengths)
    flat[edge[:-1]], flat[edge[1:] - 1] = cls, sep
    owners = np.repeat(names.ravel(), sizes.ravel())
    zeros = np.zeros_like(flat)
    tokens = TokenBatch(ids=flat, lengths=lengths, positions=ranges(lengths), segments=zeros, words=owners)
    return TrainingBatch(tokens=tokens, targets={})
