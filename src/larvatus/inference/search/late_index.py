"""Search by late interaction: the tokens of a question are compared with those of passages, and which words match.

    index = LateIndex(records, pooled)
    index.search([q_NK], top=10, candidates=1000)
    matches = match_words(model, "who may appeal?", [hit.text for hit in results], rarity=index.rarity)
    matches[0].words[0]                      # WordMatch(start=4, end=9, query=2, strength=0.62)

**Search** (ColBERT, Khattab & Zaharia 2020). Every token of a passage is stored in 8 bits a dimension and a scale: x ≈
s c with c = round(x / s), s = max |x| / 127. The score of a passage is MaxSim, Σ_i max_j q_i · x_j, with the question
in float32. Small collections are compared as a whole, in blocks of tokens. In larger ones, the passages whose mean
vectors are nearest to that of the question are candidates, and MaxSim orders these.

**Matching words** are the inner part of MaxSim, read from the passage's side, for any encoder. For word i of a passage
and the words j of the query,

    s_ij = r_j cos(p_i − μ, q_j − μ),      best(i) = argmax_j s_ij,      strength(i) = max_j s_ij

where μ is the mean vector of all words of the passages: contextual vectors share a large common part, which would make
all words look alike. r_j is how rare word j is (1 for most words, near 0 for *the* and *of*). The vectors come from the
encoder of the model's sentence vectors: that of its sentence adapter, if it has one, which also ranked the passages.

n tokens of Q questions, M tokens of C passages, K size of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Ints, Records
from larvatus.core.batch import edges
from larvatus.inference.search.nearest import Matches, VectorGraph, first_of_largest, nearest_vectors, ranked
from larvatus.inference.search.storage import (
    RaggedRecords,
    Run,
    StoredVectors,
    to_int8,
    token_record,
)
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import Vectors, embed_texts
from larvatus.models.loaded import LoadedModel

EXACT = 1 << 20
"""Tokens up to which all passages are compared: about 8,000 passages."""
TOKENS = 1 << 13
"""Tokens of passages that are compared at once."""
PRODUCTS = 1 << 23
"""Products of tokens in memory: 32 MiB."""
LEAST_CANDIDATES = 1_000
"""Mean vectors are a rough guide, so more candidates are compared than in other searches."""


def encode_tokens(vectors_NK: Floats) -> bytes:
    """The token vectors of a passage as they are stored."""
    records = np.zeros(len(vectors_NK), token_record(vectors_NK.shape[1]))
    if len(vectors_NK):
        records["codes"], records["scale"] = to_int8(vectors_NK)
    return records.tobytes()


def decode_tokens(records: Records) -> Floats:
    """Stored tokens as float32: [M, K]."""
    vectors_MK: Floats = records["codes"].astype(np.float32) * records["scale"][:, None]
    return vectors_MK


def mean_vector(vectors_NK: Floats) -> Floats:
    """The mean of token vectors, scaled to length 1; zeros of a text without tokens."""
    total_K: Floats = vectors_NK.sum(0)
    unit: Floats = total_K / max(float(np.linalg.norm(total_K)), 1e-12)
    return unit


class LateIndex:
    """Token vectors of passages, with their mean vectors for candidates."""

    def __init__(self, records: RaggedRecords, means: StoredVectors, graph: VectorGraph | None = None) -> None:
        self._records, self._means, self._graph = records, means, graph

    def search(
        self,
        queries: Sequence[Floats],
        *,
        top: int,
        candidates: int,
        allowed: Bools | None = None,
        exact: bool = False,
    ) -> list[Matches]:
        """The passages with the largest MaxSim for each query.

        Args:
            queries: [n, K] token vectors of each query.
            top: Passages for each query.
            candidates: Passages that are compared, of large collections.
            allowed: [N] passages that may be returned; None for all.
            exact: Compare all passages, however many.
        """
        if exact or len(self._records.records) <= EXACT:
            rows = None if allowed is None else np.flatnonzero(allowed)
            return self._compare(queries, rows, top)
        count = max(LEAST_CANDIDATES, candidates, top)
        means_QK = np.stack([mean_vector(query) for query in queries])
        if self._graph is not None and allowed is None:
            nearest = self._graph.search(means_QK, top=count, candidates=count)
        else:
            nearest = nearest_vectors(self._means, means_QK, top=count, candidates=count, allowed=allowed)
        return [
            self._compare([query], np.sort(near.rows), top)[0] for query, near in zip(queries, nearest, strict=True)
        ]

    def _compare(self, queries: Sequence[Floats], rows: Ints | None, top: int) -> list[Matches]:
        """MaxSim of all passages, or of some, with each query."""
        matches: list[Matches] = []
        for some in _query_blocks(queries):
            best_rows = [np.empty(0, np.int64) for _ in some]
            best_scores: list[Doubles] = [np.empty(0, np.float64) for _ in some]
            for run in self._records.blocks(TOKENS, rows):
                for place, scores_C in enumerate(_maxsim(some, run)):
                    scores = np.concatenate([best_scores[place], scores_C])
                    kept = first_of_largest(scores, top)
                    best_rows[place] = np.concatenate([best_rows[place], run.passages])[kept]
                    best_scores[place] = scores[kept]
            matches += [ranked(*best, top) for best in zip(best_rows, best_scores, strict=True)]
        return matches


def _query_blocks(queries: Sequence[Floats]) -> list[list[Floats]]:
    """Queries that are compared at once, so that memory is bounded."""
    blocks: list[list[Floats]] = []
    size = 0
    for query in queries:
        if not blocks or size + len(query) > PRODUCTS // TOKENS:
            blocks.append([])
            size = 0
        blocks[-1].append(query)
        size += len(query)
    return blocks


def _maxsim(queries: Sequence[Floats], run: Run) -> Doubles:
    """MaxSim of each query with each passage of a block: [Q, C]; 0 where one of them has no token."""
    scores_QC = np.zeros((len(queries), len(run.counts)), np.float64)
    there = np.flatnonzero(run.counts)
    if not len(there):
        return scores_QC
    products_MN = decode_tokens(run.records) @ np.concatenate(queries).T
    best_CN = np.maximum.reduceat(products_MN, edges(run.counts)[:-1][there], axis=0).astype(np.float64)
    starts = edges(np.array([len(query) for query in queries], np.int64))
    for place, (first, last) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        scores_QC[place, there] = best_CN[:, first:last].sum(1)
    return scores_QC


# Words that match.

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
