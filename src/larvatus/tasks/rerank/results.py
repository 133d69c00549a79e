"""What a reranker predicts: a score for a passage, and the order of a query's passages.

found = model.predict(("Where does a river end?", "A river ends in the sea."))
found.score, found.coverage.windows

ranked = model.rerank("Where does a river end?", ["The bank is steep.", "A river ends in the sea."], top=1)
ranked[0].passage, ranked[0].score, ranked[0].index
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from larvatus.core.tables import Tabular
from larvatus.tasks.results import Coverage, Piece


@dataclass(frozen=True, kw_only=True)
class ScoredPassage(Tabular):
    """A passage with its relevance to a query."""

    query: str
    passage: str
    score: float
    """With the model's activation: of a sigmoid between 0 and 1."""
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        return {"query": self.query, "passage": self.passage, "score": self.score, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(f"{self.score:.3f}", "bold")
        yield Piece("  ")
        yield Piece(self.query)
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.passage)

    def __str__(self) -> str:
        return f"{self.score:.3f}"


@dataclass(frozen=True, kw_only=True)
class RankedPassage(ScoredPassage):
    """A passage among those of a query."""

    rank: int
    """From 1, the most relevant."""
    index: int
    """Place among the passages as they were given, from 0."""

    def to_dict(self) -> dict[str, Any]:
        return {"rank": self.rank, "index": self.index, **super().to_dict()}

    def __str__(self) -> str:
        return f"{self.rank}. {self.score:.3f} {self.passage}"
