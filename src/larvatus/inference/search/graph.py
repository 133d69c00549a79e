"""Approximate search with a graph of near neighbours: HNSW (Malkov & Yashunin 2020), by the library `usearch`.

    write_graph(folder, stored)
    VectorGraph.open(folder, stored).search(queries_QD, top=10, candidates=100)

A search walks from vector to vector towards the query and compares some hundred of them instead of all; what it finds
is scored again exactly. It may miss a neighbour: more `candidates` miss fewer. The graph is mapped from the disk. It is
built on all cores, and which of equally good links it has depends on their timing; exact search depends on nothing.
With one thread, equal vectors give equal files for the same processor time, and the clock shows all of it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.inference.search.exact import Matches, ranked
from larvatus.inference.search.quantised import StoredVectors
from larvatus.inference.search.ragged import AGAIN

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
