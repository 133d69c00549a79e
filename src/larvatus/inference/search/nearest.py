"""The nearest of many vectors, exactly, block by block: what is searched need never be in memory at once.

    for hit in nearest(query, blocks, top=10):
        hit.cosine, hit.row.left, hit.row.word, hit.row.right

A block is a matrix of unit vectors (often mapped from a file) with a way to read its rows. Each is searched by the
`usearch` library, the extra `index`, or more slowly without it; the best of all blocks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.tabular import Tabular

STRETCH = 16_384
"""Vectors that are compared at once where numpy does it."""
CONTEXT = 40
"""Characters of context that a concordance shows on either side."""


@dataclass(frozen=True)
class Row:
    """A word instance of a corpus."""

    word: str
    left: str
    right: str
    source: str
    line: int
    start: int
    """First character in its document."""


@dataclass(frozen=True)
class Hit:
    cosine: float
    row: Row

    def to_dict(self) -> dict[str, Any]:
        row = self.row
        return {
            "cosine": round(self.cosine, 6),
            "word": row.word,
            "left": row.left,
            "right": row.right,
            "source": row.source,
            "line": row.line,
            "start": row.start,
        }

    def __str__(self) -> str:
        row = self.row
        return f"{self.cosine:6.3f}  {row.left:>{CONTEXT}} {row.word} {row.right:<{CONTEXT}}  {row.source}:{row.line}"


@dataclass(frozen=True, eq=False)
class Block:
    """N vectors of length 1, and their rows."""

    vectors: npt.NDArray[Any]
    """[N, D] float32 or float16."""
    rows: Callable[[Sequence[int]], Sequence[Row]]


@dataclass(frozen=True, eq=False, repr=False)
class Concordance(Tabular):
    """The instances that mean most nearly the same as a query, best first."""

    hits: tuple[Hit, ...]
    searched: int
    """Instances that were compared."""

    def to_dict(self) -> dict[str, Any]:
        return {"searched": self.searched, "hits": [hit.to_dict() for hit in self.hits]}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each instance, nearest first."""
        return [{"rank": rank, **hit.to_dict()} for rank, hit in enumerate(self.hits, start=1)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits))

    def __repr__(self) -> str:
        return f"<Concordance: {len(self.hits)} of {self.searched:,} instances>"


def places_of_nearest(vectors_ND: npt.NDArray[Any], query_D: npt.NDArray[Any], top: int) -> list[int]:
    """Where the `top` vectors with the largest cosine stand, in the order of the block."""
    count = min(top, len(vectors_ND))
    if find_spec("usearch") is None:
        return _places_by_numpy(vectors_ND, query_D, count)
    from usearch.index import MetricKind, search

    matches = search(vectors_ND, query_D, count, MetricKind.Cos, exact=True, threads=0)
    return sorted(np.asarray(matches.keys).astype(np.int64).tolist())


def _places_by_numpy(vectors_ND: npt.NDArray[Any], query_D: npt.NDArray[Any], count: int) -> list[int]:
    query = query_D.astype(np.float32)
    cosines_N = np.empty(len(vectors_ND), dtype=np.float32)
    for first in range(0, len(vectors_ND), STRETCH):  # in float32 a stretch at a time: a block may be mapped from disk
        part = np.asarray(vectors_ND[first : first + STRETCH], dtype=np.float32)
        cosines_N[first : first + STRETCH] = part @ query / np.linalg.norm(part, axis=1)
    return sorted(np.argpartition(-cosines_N, count - 1)[:count].tolist())


def nearest(query_D: Floats, blocks: Iterable[Block], top: int) -> Concordance:
    """The `top` vectors with the largest cosine; equally near ones in the order of the corpus."""
    if top < 1:
        raise UsageError(f"--top {top} shows nothing; say 1 or more")
    best: list[Hit] = []
    searched = 0
    for block in blocks:
        count = len(block.vectors)
        if not count:
            continue
        if block.vectors.ndim != 2 or block.vectors.shape[1] != len(query_D):
            size = block.vectors.shape[-1]
            raise ArtefactError(f"the vectors that are searched have {size} numbers, and the model's {len(query_D)}")
        searched += count
        query = query_D.astype(block.vectors.dtype)
        numbers = places_of_nearest(block.vectors, query, top)
        near = np.asarray(block.vectors[numbers], dtype=np.float64)
        cosines = near @ query_D.astype(np.float64) / np.linalg.norm(near, axis=1)
        floor = best[-1].cosine if len(best) >= top else -np.inf
        chosen = [place for place in range(len(numbers)) if cosines[place] > floor]
        rows = block.rows([numbers[place] for place in chosen])
        best += [Hit(float(cosines[place]), row) for place, row in zip(chosen, rows, strict=True)]
        best = sorted(best, key=lambda hit: -hit.cosine)[:top]  # stable: earlier first
    return Concordance(tuple(best), searched)
