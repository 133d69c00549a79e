"""Results of a search: passages with their scores and their exact places.

results = index.search("who may appeal?", top=3)
results[0].text, results[0].document, results[0].start
results.to_pandas()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from larvatus.core import notebook
from larvatus.core.errors import printable
from larvatus.core.tables import Column, Table, Tabular

SHOWN = 90
"""Characters of a passage in a table."""


@dataclass(frozen=True)
class SearchHit:
    """A passage that was found."""

    rank: int
    """1 for the best."""
    score: float
    """Cosine; BM25, the fused score or the reranker's score where these were requested."""
    document: str
    """File that it is in."""
    line: int
    """Line of the file (row of a Parquet file) where it begins."""
    start: int
    """First character in the file's text; in the text of its row, if the file is a table or holds records."""
    end: int
    """Character after the last."""
    text: str
    metadata: dict[str, str | None] = field(default_factory=dict)
    """Columns that were indexed with it."""

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("rank", "score", "document", "line", "start", "end", "text")}
        return {**plain, **{f"metadata.{name}": value for name, value in self.metadata.items()}}


@dataclass(frozen=True, repr=False)
class SearchResults(Tabular):
    """The passages that answer a query best, best first."""

    query: str
    hits: tuple[SearchHit, ...]
    searched: int
    """Passages that were searched."""
    changed: tuple[str, ...] = ()
    """Files of the hits that are no longer as they were indexed."""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.hits)

    def __getitem__(self, place: int) -> SearchHit:
        return self.hits[place]

    def to_dict(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "searched": self.searched,
            "changed": list(self.changed),
            "hits": [hit.to_dict() for hit in self.hits],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each passage, best first."""
        return [hit.to_dict() for hit in self.hits]

    def table(self) -> Table:
        """The hits with the beginning of each passage."""
        columns = [Column("rank"), Column("score"), Column("document", right=False), Column("passage", right=False)]
        rows = [
            (str(hit.rank), f"{hit.score:.4f}", f"{printable(hit.document)}:{hit.line}", shortened(hit.text))
            for hit in self.hits
        ]
        notes = [f"{each} since it was indexed; build the index again to search its text" for each in self.changed]
        return Table(columns, rows, title=f"{shortened(self.query)}: best of {self.searched:,} passages", notes=notes)

    def _repr_html_(self) -> str:
        rows = [tuple(cell.text for cell in row) for row in self.table().cells]
        return notebook.table(("rank", "score", "document", "passage"), rows, note=f"{self.searched:,} passages")

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<SearchResults: {len(self.hits)} of {self.searched:,} passages>"


def shortened(text: str, most: int = SHOWN) -> str:
    """A text on one line, cut after `most` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"
