"""Documents with their clusters of mentions.

CorefExample(("Ann", "said", "she", "ran"), (((0, 1), (2, 3)),), place)        # words [first, end) of each mention
sort_clusters({"1": [(2, 3), (0, 1)], "2": [(0, 1)]})     # in the order of the text, each mention in one cluster
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Place, WordsExample, shorten

WordSpan = tuple[int, int]
"""First word of a mention, and the word after its last."""
Clusters = tuple[tuple[WordSpan, ...], ...]


@dataclass(frozen=True, slots=True)
class CorefExample(WordsExample):
    """The words of a document and clusters of its mentions, in the order of the text."""

    labels_are: ClassVar = "spans"
    noun: ClassVar = "documents"

    words: tuple[str, ...]
    clusters: Clusters | None
    """Mentions of each cluster; None where they are not known."""
    place: Place
    text: str | None = None
    """The text as it was written; None: words with single spaces between them."""
    places: tuple[tuple[int, int], ...] | None = None
    """Characters of each word in `text`, start and end; None where `text` is."""
    id: str | None = None
    sentences: tuple[int, ...] = ()
    """First word of each sentence; empty where sentences are not known."""
    speakers: tuple[str, ...] = ()
    """Who says each word, "" where nobody is named; empty where speakers are not known."""

    def __post_init__(self) -> None:
        if self.speakers and len(self.speakers) != len(self.words):
            raise DataError(f"{self.place}: {len(self.words):,} words but {len(self.speakers):,} speakers")
        if (self.text is None) != (self.places is None) or len(self.places or self.words) != len(self.words):
            raise DataError(f"{self.place}: a text goes with the characters of each of its words; give both or neither")

    @property
    def word_places(self) -> tuple[tuple[int, int], ...] | None:
        return self.places

    @property
    def mentions(self) -> list[WordSpan]:
        return [mention for cluster in self.clusters or () for mention in cluster]

    def names(self) -> Iterable[str]:
        return ["mention"] * len(self.mentions)

    def strata(self) -> set[str]:
        return set()

    def answer(self) -> object:
        return self.clusters

    def answer_shown(self) -> str:
        return shorten(" / ".join(" ".join(self.words[a:b]) for a, b in self.mentions))

    def contents(self) -> list[Any]:
        return [self.words, self.clusters, *([self.speakers] if self.speakers else [])]


class ClusterNotes(NamedTuple):
    """How often mentions were not as a clustering has them."""

    repeated: int = 0
    """Mentions that a cluster has twice."""
    shared: int = 0
    """Mentions in two clusters."""
    crossing: int = 0
    """Pairs of mentions that overlap, neither inside the other."""
    across: int = 0
    """Mentions that reach over the end of a sentence."""
    pieces: int = 0
    """Mentions in several pieces."""

    def __add__(self, other: Any) -> ClusterNotes:
        return ClusterNotes(*(a + b for a, b in zip(self, other, strict=True)))

    def lines(self) -> tuple[str, ...]:
        """What was done about them, for people."""
        said = (
            (self.repeated, "mentions that their cluster has twice are read once"),
            (self.shared, "mentions are in two clusters and kept in the first"),
            (self.crossing, "pairs of mentions cross and are kept"),
            (self.across, "mentions reach over the end of a sentence and are kept"),
            (self.pieces, "mentions in several pieces are left out"),
        )
        return tuple(f"{count:,} {what}" for count, what in said if count)


def sort_clusters(
    groups: Mapping[Any, Sequence[WordSpan]], sentences: Sequence[int] = ()
) -> tuple[Clusters, ClusterNotes]:
    """Clusters in the order of their first mentions; a mention in two of them stays in the first."""
    taken: set[WordSpan] = set()
    clusters, repeated, shared = [], 0, 0
    for mentions in sorted((sorted(group) for group in groups.values() if group), key=lambda group: group[0]):
        kept = dict.fromkeys(mentions)
        repeated += len(mentions) - len(kept)
        shared += len(kept.keys() & taken)
        left = tuple(mention for mention in kept if mention not in taken)
        taken.update(left)
        if left:
            clusters.append(left)
    clusters.sort()
    across = sum(any(a < start < b for start in sentences) for a, b in taken) if sentences else 0
    return tuple(clusters), ClusterNotes(repeated, shared, count_crossing(taken), across)


def count_crossing(mentions: Iterable[WordSpan]) -> int:
    """Pairs of mentions that overlap, neither inside the other.

    >>> count_crossing([(0, 3), (1, 2), (2, 5)])
    1
    """
    open_ends: list[int] = []
    crossing = 0
    for first, end in sorted(mentions, key=lambda span: (span[0], -span[1])):
        open_ends = [other for other in open_ends if other > first]
        crossing += sum(other < end for other in open_ends)
        open_ends.append(end)
    return crossing
