"""The nearest vectors of a query: exact, or approximate through a graph.

    for matches in nearest_vectors(stored, queries_QD, top=10):
        matches.rows, matches.scores        # best first
    write_graph(folder, stored)
    VectorGraph.open(folder, stored).search(queries_QD, top=10, candidates=100)

**Exact**: every vector is compared with the query, some thousand at a time, so that memory does not grow. For unit
vectors the score is the cosine, x · q. A block of rows is scored by one matrix product in float32 (of half precision,
by `half_products`); the best of all blocks are scored again in float64 and sorted by score, equal ones by row. With two
stored kinds (`storage.py`), more candidates are taken from the first kind than are needed, and the second kind selects
among them.

**Graph** of near neighbours: HNSW (Malkov & Yashunin 2020), by the library `usearch`. A search walks from vector to
vector towards the query and compares some hundred of them instead of all; what it finds is scored again exactly. It may
miss a neighbour: more `candidates` miss fewer. The graph is mapped from the disk. It is built on all cores, and which
of equally good links it has depends on their timing; exact search depends on nothing. With one thread, equal vectors
give equal files.

Q queries, D dimensions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Ints
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.inference.search.storage import AGAIN, StoredVectors

FUSION_K = 60
"""k of reciprocal-rank fusion."""
QUERIES = 64
"""Queries that are compared at once."""
MOST_GATHERED = 0.125
"""Share of the vectors up to which filtered rows are read one by one; of more, all rows are read in order."""


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows of an index with their scores, best first."""

    rows: Ints
    scores: Doubles

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> Matches:
        return Matches(self.rows[:count], self.scores[:count])


def ranked(rows: Ints, scores: Doubles, top: int) -> Matches:
    """The `top` rows with the largest scores; equal ones in the order of the index."""
    order = np.lexsort((rows, -scores))[:top]
    return Matches(rows[order], scores[order])


def fuse(rankings: Sequence[Matches], *, top: int) -> Matches:
    """The `top` passages by reciprocal-rank fusion (Cormack, Clarke & Büttcher 2009), which makes several rankings one.

        score(d) = Σ_r 1 / (k + rank_r(d)),   k = 60

    Only ranks count, so that cosines and BM25 scores need not be made comparable. A passage that a ranking lacks gets
    nothing from it; equal ones stay in the order of the index.

    >>> a, b = (Matches(np.array(rows), np.zeros(len(rows))) for rows in ([7, 3], [3, 9]))
    >>> fuse([a, b], top=3).rows.tolist()
    [3, 7, 9]
    """
    rows, places = np.unique(np.concatenate([ranking.rows for ranking in rankings]), return_inverse=True)
    sums: Doubles = np.zeros(len(rows), dtype=np.float64)
    np.add.at(sums, places, np.concatenate([1.0 / (FUSION_K + np.arange(1, len(each) + 1)) for each in rankings]))
    return ranked(rows, sums, top)


def nearest_vectors(
    stored: StoredVectors,
    queries_QD: Floats,
    *,
    top: int,
    candidates: int,
    allowed: Bools | None = None,
) -> list[Matches]:
    """The rows with the largest cosine to each query.

    Args:
        stored: The vectors.
        queries_QD: Unit vectors of the queries.
        top: Rows for each query.
        candidates: Rows that are rescored, if two kinds are stored.
        allowed: [N] rows that may be returned; None for all.
    """
    count = max(top, candidates) if len(stored.kinds) > 1 else top
    matches: list[Matches] = []
    for first in range(0, len(queries_QD), QUERIES):
        some_QD = np.ascontiguousarray(queries_QD[first : first + QUERIES], dtype=np.float32)
        for query_D, rows in zip(some_QD, _best_rows(stored, some_QD, count, allowed), strict=True):
            matches.append(ranked(rows, stored.rescored(rows, query_D), top))
    return matches


def _best_rows(stored: StoredVectors, queries_QD: Floats, count: int, allowed: Bools | None) -> list[Ints]:
    """The `count` best rows of each query by float32 scores, in any order."""
    total = len(stored)
    gathered = None
    if allowed is not None and allowed.sum() <= MOST_GATHERED * total:
        gathered, total = np.flatnonzero(allowed), int(allowed.sum())
    best = [_Best(count) for _ in queries_QD]
    step = stored.block
    buffer_BD = np.empty((min(step, total), stored.size), np.float32) if stored.in_float32 else None
    for low in range(0, total, step):
        rows = np.arange(low, min(low + step, total))
        block = slice(low, low + step) if gathered is None else gathered[rows]
        scores_QB = stored.scores(block, queries_QD, buffer_BD)
        rows = rows if gathered is None else gathered[rows]
        if allowed is not None and gathered is None:
            inside = allowed[rows]
            rows, scores_QB = rows[inside], scores_QB[:, inside]
        for each, scores_B in zip(best, scores_QB, strict=True):
            each.add(rows, scores_B)
    return [each.rows for each in best]


class _Best:
    """The best rows so far."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rows = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._least = np.inf

    def add(self, rows: Ints, scores: Floats) -> None:
        if len(self.rows) == self.count:  # most blocks have no row that is better than what is there
            better = np.flatnonzero(scores > self._least)
            if not len(better):
                return
            rows, scores = rows[better], scores[better]
        self.rows, self._scores = np.concatenate([self.rows, rows]), np.concatenate([self._scores, scores])
        if len(self.rows) > self.count:
            kept = first_of_largest(self._scores, self.count)
            self.rows, self._scores = self.rows[kept], self._scores[kept]
        self._least = self._scores.min(initial=np.inf)


def first_of_largest(scores: Floats | Doubles, count: int) -> Ints:
    """Places of the `count` largest scores, in order; of equal ones at the border, the first.

    >>> first_of_largest(np.array([1.0, 3.0, 1.0, 2.0]), 3).tolist()
    [0, 1, 3]
    """
    if count >= len(scores):
        return np.arange(len(scores))
    border = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > border)
    equal = np.flatnonzero(scores == border)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))


# The graph.

NAME = "graph.usearch"
NUMBERS = {"float32": "f32", "float16": "f16", "int8": "i8"}
LINKS, BREADTH = 16, 128
"""Links of a vector, and vectors that are considered when it is added (usearch: connectivity, expansion_add)."""
AT_ONCE = 16_384


def has_usearch() -> bool:
    return find_spec("usearch") is not None


def require_usearch() -> None:
    """Before the work, not after it."""
    if not has_usearch():
        raise UsageError('a graph (--hnsw) needs usearch; pip install "larvatus[index]", or search with --exact')


def check_graph(kinds: tuple[str, ...]) -> None:
    """Refuse a graph of vectors that have none."""
    require_usearch()
    if kinds[0] not in NUMBERS:
        raise UsageError(f"--hnsw is for float32, float16 and int8 vectors, and these are {kinds[0]}; leave it out")


def _empty(stored: StoredVectors) -> Any:
    from usearch.index import Index, MetricKind

    kind = stored.kinds[0]
    return Index(
        ndim=stored.size,
        metric=MetricKind.Cos,
        dtype=NUMBERS[kind],
        connectivity=LINKS,
        expansion_add=BREADTH,
    )


def write_graph(folder: Path, stored: StoredVectors, *, threads: int = 0) -> None:
    """Build the graph of all vectors; `threads` is 0 for all cores."""
    check_graph(stored.kinds)
    graph = _empty(stored)
    for low in range(0, len(stored), AT_ONCE):
        vectors_BD = stored.decode(slice(low, low + AT_ONCE), stored.kinds[0])
        graph.add(np.arange(low, low + len(vectors_BD)), vectors_BD, threads=threads)
    try:
        graph.save(os.fspath(folder / NAME))
    except RuntimeError as fault:  # the library says neither what is full nor why
        raise ArtefactError(f"{folder / NAME} cannot be written ({fault}); is the disk full?") from fault


class VectorGraph:
    """The graph of an index."""

    def __init__(self, graph: Any, stored: StoredVectors) -> None:
        self._graph, self._stored = graph, stored

    @classmethod
    def open(cls, folder: Path, stored: StoredVectors) -> VectorGraph:
        require_usearch()
        graph = _empty(stored)
        try:
            graph.view(os.fspath(folder / NAME))
        except RuntimeError as fault:
            raise ArtefactError(f"{folder / NAME} cannot be read ({fault}); {AGAIN}") from fault
        if len(graph) != len(stored) or graph.ndim != stored.size:
            raise ArtefactError(f"{folder / NAME} does not fit the vectors of the index; {AGAIN}")
        return cls(graph, stored)

    def search(self, queries_QD: Floats, *, top: int, candidates: int) -> list[Matches]:
        """Vectors near to each query, best first."""
        count = min(max(top, candidates), len(self._stored))
        self._graph.expansion_search = max(64, count)
        matches = []
        for query_D in np.ascontiguousarray(queries_QD, dtype=np.float32):
            rows = np.sort(np.asarray(self._graph.search(query_D, count, threads=1).keys).astype(np.int64))
            matches.append(ranked(rows, self._stored.rescored(rows, query_D), top))
        return matches
