"""Search by late interaction: the tokens of a question are compared with those of passages (ColBERT, Khattab & Zaharia
2020).

    index = LateIndex(records, pooled)
    index.search([q_NK], top=10, candidates=1000)

Every token of a passage is stored in 8 bits a dimension and a scale: x ≈ s c with c = round(x / s), s = max |x| / 127.
The score of a passage is MaxSim, Σ_i max_j q_i · x_j, with the question in float32. Small collections are compared as a
whole, in blocks of tokens. In larger ones, the passages whose mean vectors are nearest to that of the question are
candidates, and MaxSim orders these. n tokens of Q questions, M tokens of C passages, K size of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Ints, Records
from larvatus.core.batch import edges
from larvatus.inference.search.exact import Matches, first_of_largest, nearest_vectors, ranked
from larvatus.inference.search.graph import VectorGraph
from larvatus.inference.search.quantised import StoredVectors, to_int8
from larvatus.inference.search.ragged import RaggedRecords, Run, token_record

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
