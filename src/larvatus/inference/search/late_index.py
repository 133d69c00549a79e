"""Search by tokens: late interaction (ColBERT), and sparse weights of the vocabulary (SPLADE).

Late interaction (ColBERT, Khattab & Zaharia 2020): search by tokens, and which words match.

Search by late interaction: the tokens of a question are compared with those of passages (ColBERT, Khattab & Zaharia
2020).

    index = LateIndex(records, pooled)
    index.search([q_NK], top=10, candidates=1000)

Every token of a passage is stored in 8 bits a dimension and a scale: x ≈ s c with c = round(x / s), s = max |x| / 127.
The score of a passage is MaxSim, Σ_i max_j q_i · x_j, with the question in float32. Small collections are compared as a
whole, in blocks of tokens. In larger ones, the passages whose mean vectors are nearest to that of the question are
candidates, and MaxSim orders these. n tokens of Q questions, M tokens of C passages, K size of a vector.

Which words of a passage match which words of a query, by their contextual vectors.

    matches = match_words(model, "who may appeal?", [hit.text for hit in results], rarity=index.rarity)
    matches[0].words[0]                      # WordMatch(start=4, end=9, query=2, strength=0.62)

This is the inner part of late interaction (ColBERT's MaxSim, Khattab & Zaharia 2020), read from the passage's side. For
word i of a passage and the words j of the query,

    s_ij = r_j cos(p_i − μ, q_j − μ),      best(i) = argmax_j s_ij,      strength(i) = max_j s_ij

where μ is the mean vector of all words of the passages: contextual vectors share a large common part, which would make
all words look alike. r_j is how rare word j is (1 for most words, near 0 for *the* and *of*). The vectors come from the
encoder of the model's sentence vectors: that of its sentence adapter, if it has one, which also ranked the passages.

Search by sparse vectors: an inverted index of the weights that a model gives to tokens (SPLADE, Formal et al. 2021).

    tokens.starts.npy      [V + 1] where the postings of each token begin
    tokens.rows.npy        [P] passages, ascending for each token
    tokens.weights.npy     [P] weights

    write_postings(folder, records, vocabulary)
    SparseIndex.open(folder, vocabulary, count).search([(tokens, weights)], top=10)

The score of a passage is the dot product Σ_j w_j(q) w_j(d): the postings of the question's tokens are added up, as BM25
does it (`lexical.py`). N passages, V tokens of the vocabulary, P weights above 0 in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Integers, Ints, Records
from larvatus.core.batch import edges
from larvatus.core.errors import ArtefactError
from larvatus.inference.search.nearest import Matches, VectorGraph, first_of_largest, nearest_vectors, ranked
from larvatus.inference.search.storage import (
    AGAIN,
    WEIGHT,
    RaggedRecords,
    Run,
    StoredVectors,
    to_int8,
    token_record,
    write_header,
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


STARTS, ROWS, WEIGHTS = "tokens.starts.npy", "tokens.rows.npy", "tokens.weights.npy"
BLOCK = 1 << 21
"""Postings that are sorted at once: 48 MiB."""


def encode_weights(tokens: Ints, weights: Floats) -> bytes:
    """The weights of a passage as they are stored."""
    records = np.zeros(len(tokens), WEIGHT)
    records["token"], records["weight"] = tokens, weights
    return records.tobytes()


def write_postings(folder: Path, records: RaggedRecords, vocabulary: int) -> None:
    """Write the inverted index: tokens in groups that fit into memory, one pass over all passages for each group."""
    counts_V = np.zeros(vocabulary, np.int64)
    for run in records.blocks(BLOCK):
        counts_V += np.bincount(run.records["token"], minlength=vocabulary)
    starts = np.concatenate([[0], np.cumsum(counts_V)])
    np.save(folder / STARTS, starts.astype(np.int64))
    write_pairs(folder / ROWS, folder / WEIGHTS, int(starts[-1]), _by_token(records, starts))


def write_pairs(rows_path: Path, weights_path: Path, total: int, blocks: Iterable[tuple[Records, Records]]) -> None:
    """The passages of all postings and their weights, as two arrays."""
    with rows_path.open("wb") as rows_file, weights_path.open("wb") as weights_file:
        write_header(rows_file, np.dtype(np.int32), (total,))
        write_header(weights_file, np.dtype(np.float32), (total,))
        for rows, weights in blocks:
            rows_file.write(rows.astype(np.int32).tobytes())
            weights_file.write(weights.astype(np.float32).tobytes())


def groups(starts: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive tokens, first to last, that have at most `most` postings, or one token that has more."""
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = max(first + 1, min(last, len(starts) - 1))
        yield first, last
        first = last


def _by_token(records: RaggedRecords, starts: Ints) -> Iterator[tuple[Ints, Records]]:
    """Passages and weights of all postings, by token and then by passage."""
    for first, last in groups(starts, BLOCK):
        chosen: list[Records] = [np.zeros(0, WEIGHT)]
        rows: list[Ints] = [np.zeros(0, np.int64)]
        for run in records.blocks(BLOCK):
            inside = (run.records["token"] >= first) & (run.records["token"] < last)
            chosen.append(run.records[inside])
            rows.append(np.repeat(run.passages, run.counts)[inside])
        group = np.concatenate(chosen)
        order = np.argsort(group["token"], kind="stable")
        yield np.concatenate(rows)[order], group["weight"][order]


class SparseIndex:
    """The postings of N passages, mapped from the disk."""

    def __init__(self, starts: Ints, rows: Integers, weights: Floats, count: int) -> None:
        self._starts, self._rows, self._weights, self._count = starts, rows, weights, count

    @classmethod
    def open(cls, folder: Path, vocabulary: int, count: int) -> SparseIndex:
        """Map the postings of an index of `count` passages; files that do not fit each other are refused."""
        try:
            starts, rows, weights = (np.load(folder / name, mmap_mode="r") for name in (STARTS, ROWS, WEIGHTS))
        except (OSError, ValueError) as fault:
            raise ArtefactError(f"the postings of {folder} cannot be read ({fault}); {AGAIN}") from fault
        fits = starts.shape == (vocabulary + 1,) and starts[0] == 0 and not (np.diff(starts) < 0).any()
        if not fits or rows.shape != (int(starts[-1]),) or weights.shape != rows.shape:
            raise ArtefactError(f"{folder / STARTS} does not fit the postings; {AGAIN}")
        if (rows.dtype, weights.dtype) != (np.int32, np.float32):
            raise ArtefactError(f"{folder / ROWS} and {WEIGHTS} hold other numbers than an index does; {AGAIN}")
        return cls(np.asarray(starts), rows, weights, count)

    def scores(self, tokens: Ints, weights: Floats | Ints) -> Doubles:
        """The dot product of a query with every passage: [N]."""
        scores_N: Doubles = np.zeros(self._count, np.float64)
        for token, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
            run = slice(int(self._starts[token]), int(self._starts[token + 1]))
            scores_N[self._rows[run]] += weight * self._weights[run].astype(np.float64)
        return scores_N

    def search(
        self, queries: Sequence[tuple[Ints, Floats | Ints]], *, top: int, allowed: Bools | None = None
    ) -> list[Matches]:
        """Passages that share a token with each query, best first; equal scores in the order of the index."""
        matches = []
        for tokens, weights in queries:
            scores_N = self.scores(tokens, weights)
            if allowed is not None:
                scores_N[~allowed] = 0.0
            rows = np.flatnonzero(scores_N)
            kept = rows[first_of_largest(scores_N[rows], top)]
            matches.append(ranked(kept, scores_N[kept], top))
        return matches
