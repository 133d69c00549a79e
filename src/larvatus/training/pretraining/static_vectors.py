"""Static vectors of tokens: tokens that occur in the same contexts have similar vectors.

    vectors = static_vectors(texts, tokenizer, seed=0)           # [V, 100], rows of length 1; 0 for tokens not seen

Positive pointwise mutual information of tokens within five places of each other, factorised: for small corpora as good
as skip-gram with negative sampling, which factorises nearly the same matrix (Levy & Goldberg 2014; Levy, Goldberg &
Dagan 2015, whose settings these are: contexts smoothed by an exponent of 0.75, square roots of the eigenvalues). The
leading eigenvectors come from a randomised range finder (Halko, Martinsson & Tropp 2011). Equal texts and seeds give
equal vectors. A pair counts less the further apart it is, as in GloVe: 1 / distance.

V tokens, D dimensions of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.rng import derive
from larvatus.data.text.tokenizer import Tokenizer

DIMENSIONS = 100
WINDOW = 5
SMOOTHING = 0.75
"""Exponent of the context counts: rare contexts would otherwise look too informative."""
LEAST_COUNT = 2
"""Occurrences below which a token has no vector: one context says nothing about it."""
MOST_TOKENS = 20_000_000
"""Tokens of text that are counted; more hardly change the vectors."""
ITERATIONS, OVERSAMPLING = 6, 20
"""Steps and extra columns of the range finder."""
TEXTS_AT_ONCE = 256
PAIRS_AT_ONCE = 1 << 24


def static_vectors(texts: Iterable[str], tokenizer: Tokenizer, *, seed: int, dimensions: int = DIMENSIONS) -> Doubles:
    """[V, D] a vector of length 1 for each token of the texts; 0 for tokens that occur too rarely."""
    encoded = _encoded(texts, tokenizer)
    counts = np.zeros(tokenizer.size, np.int64)
    pairs = CooccurrenceCounts(tokenizer.size)
    for ids, lengths in encoded:
        counts += np.bincount(ids, minlength=tokenizer.size)
        pairs.add(ids, lengths)
    keys, weights = pairs.total()
    frequent = counts >= LEAST_COUNT
    frequent[sorted(tokenizer.special_ids)] = False
    rows, columns = np.divmod(keys, tokenizer.size)
    kept = frequent[rows] & frequent[columns]
    return factorise(rows[kept], columns[kept], weights[kept], size=tokenizer.size, dimensions=dimensions, seed=seed)


def _encoded(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[Ints, Ints]]:
    """Concatenated ids of texts, and the number of each, up to `MOST_TOKENS`."""
    remaining, left = iter(texts), MOST_TOKENS
    while left > 0 and (batch := list(islice(remaining, TEXTS_AT_ONCE))):
        ids, lengths = tokenizer.encode_lengths(batch)
        yield ids.astype(np.int64), lengths
        left -= len(ids)


class CooccurrenceCounts:
    """Weights of pairs of tokens that occur near each other, in both directions."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._keys: Ints = np.zeros(0, np.int64)
        self._weights: Doubles = np.zeros(0)
        self._waiting: list[tuple[Ints, Doubles]] = []

    def add(self, ids: Ints, lengths: Ints) -> None:
        """Count the pairs of concatenated texts; no pair spans two texts."""
        text = np.repeat(np.arange(len(lengths)), lengths)
        for distance in range(1, WINDOW + 1):
            same = text[distance:] == text[:-distance]
            left, right = ids[:-distance][same], ids[distance:][same]
            keys = np.concatenate([left * self.size + right, right * self.size + left])
            self._waiting.append((keys, np.full(len(keys), 1.0 / distance)))
        if sum(len(keys) for keys, _ in self._waiting) > PAIRS_AT_ONCE:
            self._merge()

    def _merge(self) -> None:
        keys: Ints = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        weights: Doubles = np.concatenate([self._weights, *(weights for _, weights in self._waiting)])
        self._waiting = []
        self._keys, place = np.unique(keys, return_inverse=True)
        self._weights = np.bincount(place, weights=weights, minlength=len(self._keys)).astype(np.float64, copy=False)

    def total(self) -> tuple[Ints, Doubles]:
        """Pairs as row × V + column, each once, in order; and their weights."""
        self._merge()
        return self._keys, self._weights


def factorise(rows: Ints, columns: Ints, weights: Doubles, *, size: int, dimensions: int, seed: int) -> Doubles:
    """[V, D] vectors of length 1 from the weights of pairs; pairs are sorted, and symmetric."""
    if not len(rows):
        return np.zeros((size, dimensions))
    values = positive_pmi(rows, columns, weights, size=size)
    matrix = torch.sparse_coo_tensor(
        torch.from_numpy(np.stack([rows, columns])),
        torch.from_numpy(values),
        (size, size),
        check_invariants=False,
        is_coalesced=True,
    )
    vectors = np.zeros((size, dimensions))  # a vocabulary may have fewer tokens than a vector has numbers
    leading = _leading(matrix, min(dimensions, size - 1), seed=seed).numpy()
    vectors[:, : leading.shape[1]] = leading
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    informed = np.bincount(rows, weights=values, minlength=size)[:, None] > 0  # others are rounding errors
    scaled: Doubles = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=informed & (lengths > 0))
    return scaled


def positive_pmi(rows: Ints, columns: Ints, weights: Doubles, *, size: int) -> Doubles:
    """max(0, log p(a, b) / (p(a) p'(b))) of each pair, where p' is the smoothed distribution of contexts."""
    of_token = np.bincount(rows, weights=weights, minlength=size)
    of_context = np.bincount(columns, weights=weights, minlength=size) ** SMOOTHING
    expected = of_token[rows] * (of_context / of_context.sum())[columns]
    information: Doubles = np.maximum(np.log(weights / expected), 0.0)
    return information


def _leading(matrix: Tensor, dimensions: int, *, seed: int) -> Tensor:
    """[V, D] the leading eigenvectors of a nearly symmetric matrix, scaled by the roots of their singular values."""
    generator = torch.Generator().manual_seed(derive(seed, "static vectors"))
    width = min(dimensions + OVERSAMPLING, matrix.shape[0])
    basis = torch.randn(matrix.shape[0], width, generator=generator, dtype=torch.float64)
    for _ in range(ITERATIONS):
        basis, _ = torch.linalg.qr(matrix @ basis)
    left, sizes, _ = torch.linalg.svd(matrix @ basis, full_matrices=False)
    vectors: Tensor = left[:, :dimensions] * sizes[:dimensions].sqrt()
    return vectors


def aligned(vectors: Doubles, pairs: Sequence[tuple[Doubles, Doubles]]) -> Doubles:
    """Vectors of one language turned into the space of another (orthogonal Procrustes, Schönemann 1966).

    `pairs` are vectors of words in the first language, with those of their translations in the second.
    """
    here, there = (np.stack(side) for side in zip(*pairs, strict=True))
    left, _, right = np.linalg.svd(here.T @ there)
    turned: Doubles = vectors @ (left @ right)
    return turned
