"""Resolved documents: words, and clusters of mentions with their characters.

found = model.predict("Ann said that she would come.")
found.clusters[0].mentions[1].text, found.clusters[0].mentions[1].start
print(found)                                                # a table of the clusters
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from larvatus.core.drawing import in_notebook
from larvatus.core.tables import Table, Tabular, render_text
from larvatus.tasks.coref.picture import draw_clusters, list_mentions
from larvatus.tasks.results import SUBSCRIPTS, Coverage, Piece


@dataclass(frozen=True, kw_only=True)
class DocumentWord:
    text: str
    start: int
    end: int
    """Characters [start, end) of the text."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A span of words that refers to something."""

    text: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    first: int
    last: int
    """Its first word and its last, itself in it."""
    score: float
    """Probability that the span is a mention."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class MentionCluster:
    """Mentions that refer to the same thing, in the order of the text."""

    mentions: tuple[Mention, ...]

    def __len__(self) -> int:
        return len(self.mentions)

    @property
    def name(self) -> str:
        """Its longest mention, the first of these."""
        return max(self.mentions, key=lambda mention: mention.last - mention.first).text

    def __str__(self) -> str:
        return ", ".join(map(str, self.mentions))


@dataclass(frozen=True, kw_only=True)
class ResolvedDocument(Tabular):
    """A text with its clusters of mentions, in the order of their first mentions."""

    text: str
    words: tuple[DocumentWord, ...]
    clusters: tuple[MentionCluster, ...]
    coverage: Coverage

    def cluster_of(self, mention: Mention) -> MentionCluster:
        """The cluster that a mention is in."""
        return next(cluster for cluster in self.clusters if mention in cluster.mentions)

    @property
    def spans(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Words [first, end) of the mentions of each cluster, as in labelled documents."""
        return tuple(tuple((each.first, each.last + 1) for each in cluster.mentions) for cluster in self.clusters)

    def _repr_html_(self) -> str:
        return in_notebook(draw_clusters(self.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        clusters = [[dataclasses.asdict(mention) for mention in cluster.mentions] for cluster in self.clusters]
        return {"text": self.text, "clusters": clusters, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each mention, one without a mention for a text that has none."""
        names = ("start", "end", "first", "last", "score")
        rows = [
            {"cluster": number, "mention": each.text, **{name: getattr(each, name) for name in names}}
            for number, cluster in enumerate(self.clusters, start=1)
            for each in cluster.mentions
        ]
        return rows or [{"cluster": None, "mention": None, **dict.fromkeys(names)}]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """The text with its mentions in brackets that have the number of their cluster: ``[Ann]₁ said [she]₁ ran``."""
        marks = [
            (each.start, -each.end, each.end, number)
            for number, cluster in enumerate(self.clusters, start=1)
            for each in cluster.mentions
        ]
        events = [(start, 1, behind, "[", number) for start, behind, _, number in marks]
        events += [(end, 0, -start, "]", number) for start, _, end, number in marks]
        at = 0
        for place, _, _, bracket, number in sorted(events):
            yield Piece(self.text[at:place])
            label = str(number)
            said = bracket if bracket == "[" else f"]{label.translate(SUBSCRIPTS)}"
            yield Piece(said, f"bold label:{label}")
            at = place
        yield Piece(self.text[at:])

    def __str__(self) -> str:
        if not self.clusters:
            return "no clusters"
        rows = [
            (str(number), f"{len(cluster):,}", list_mentions(self.text, cluster.mentions))
            for number, cluster in enumerate(self.clusters, start=1)
        ]
        return render_text([Table(("cluster", "mentions", "in the text"), tuple(rows))])
