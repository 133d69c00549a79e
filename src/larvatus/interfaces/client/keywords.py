"""Keywords of the client's requests that go to the server as they are.

client.search("Who may appeal?", top=3, rerank="rerank")
"""

from __future__ import annotations

from typing import TypedDict


class RankingKeywords(TypedDict, total=False):
    """How a server ranks passages; what is left out, or None, is the server's default."""

    top: int | None
    """Number of passages."""
    hybrid: bool | None
    """Fuse the ranking by meaning with that by words (BM25)."""
    bm25: bool | None
    """Rank by words only."""
    rerank: str | None
    """Name of a served model that orders the candidates."""
    candidates: int | None
    """Passages of each first ranking that are rescored, fused or reranked."""
