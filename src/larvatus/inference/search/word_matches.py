"""Which words of a passage match which words of a query, by their contextual vectors.

    matches = match_words(model, "who may appeal?", [hit.text for hit in results], rarity=index.rarity)
    matches[0].words[0]                      # WordMatch(start=4, end=9, query=2, strength=0.62)

This is the inner part of late interaction (ColBERT's MaxSim, Khattab & Zaharia 2020), read from the passage's side. For
word i of a passage and the words j of the query,

    s_ij = r_j cos(p_i − μ, q_j − μ),      best(i) = argmax_j s_ij,      strength(i) = max_j s_ij

where μ is the mean vector of all words of the passages: contextual vectors share a large common part, which would make
all words look alike. r_j is how rare word j is (1 for most words, near 0 for *the* and *of*). The vectors come from the
encoder of the model's sentence vectors: that of its sentence adapter, if it has one, which also ranked the passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.results import Vectors
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.loaded import LoadedModel

WEAKEST = 0.25
"""Least strength of a match; below it, words have little in common."""


@dataclass(frozen=True)
class WordMatch:
    """A word of a passage, and the word of the query that it matches best."""

    start: int
    """First character in the passage."""
    end: int
    query: int
    """Number of the query's word."""
    strength: float


@dataclass(frozen=True)
class QueryWords:
    """Words of a query, and the words of each passage that match one of them."""

    words: tuple[tuple[int, int], ...]
    """Characters [start, end) of each word of the query."""
    passages: tuple[tuple[WordMatch, ...], ...]


def match_words(
    model: LoadedModel, query: str, passages: Sequence[str], *, rarity: Callable[[str], float] = lambda word: 1.0
) -> QueryWords:
    """Match each word of each passage to a word of the query; `rarity` weighs words of the query from 0 to 1."""
    texts, words_of_last_layer = [query, *passages], EmbedOptions(unit="word")
    asked, *read = embed_texts(model.sentence_encoder, model.tokenizer, texts, words_of_last_layer)
    asked_words = _words(asked)
    places = [_words(vectors) for vectors in read]
    words = [vectors.vectors[kept] for vectors, kept in zip(read, places, strict=True) if kept]
    mean_D = np.concatenate(words).mean(axis=0) if words else np.zeros(asked.vectors.shape[-1], np.float32)
    query_JD = _unit(asked.vectors[asked_words] - mean_D)
    rarity_J = np.array([rarity(asked.units[place]) for place in asked_words], dtype=np.float32)
    matched = []
    for vectors, kept in zip(read, places, strict=True):
        scores_IJ = _unit(vectors.vectors[kept] - mean_D) @ query_JD.T * rarity_J
        matched.append(_strong(vectors, kept, scores_IJ))
    return QueryWords(tuple((int(a), int(b)) for a, b in asked.spans[asked_words]), tuple(matched))


def _words(vectors: Vectors) -> list[int]:
    """Numbers of the units that have a letter or digit, and a vector."""
    missing = set(vectors.missing) if len(vectors) else set()
    return [n for n, word in enumerate(vectors.units) if n not in missing and any(map(str.isalnum, word))]


def _unit(vectors_ND: Floats) -> Floats:
    scaled: Floats = vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)
    return scaled


def _strong(vectors: Vectors, kept: Sequence[int], scores_IJ: Floats) -> tuple[WordMatch, ...]:
    if not scores_IJ.size:
        return ()
    best_I, strength_I = scores_IJ.argmax(axis=1), scores_IJ.max(axis=1)
    spans = vectors.spans[list(kept)].tolist()
    return tuple(
        WordMatch(start, end, int(best), float(strength))
        for (start, end), best, strength in zip(spans, best_I, strength_I, strict=True)
        if strength >= WEAKEST
    )
