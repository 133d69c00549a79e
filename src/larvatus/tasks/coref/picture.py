"""Clusters as marks in their text: each mention has the colour and the number of its cluster.

draw_clusters(document.to_dict())           # an `Element`

The mouse over a mention, or the focus on it, marks all mentions of its cluster. The first mention of each cluster is a
tab stop, so that a page has as many as it has clusters.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from larvatus.core.drawing import COLOURS, Element, element, folded_table

SHOWN = 12
"""Mentions of a cluster in its row of the table; more are counted."""


class DrawnMention(Struct):
    start: int
    end: int


class DrawnClusters(Struct):
    text: str
    clusters: list[list[DrawnMention]]


class _Mark(NamedTuple):
    """A mention; of one that crosses another, a part. Longer ones come first, and hold the shorter ones."""

    start: int
    backwards: int
    cluster: int
    begins: bool
    ends: bool

    @property
    def end(self) -> int:
        return -self.backwards


def draw_clusters(record: Mapping[str, Any]) -> Element:
    """The text of a record of `ResolvedDocument` with its mentions, and a table of the clusters."""
    drawn = msgspec.convert(record, DrawnClusters)
    text, clusters = drawn.text, drawn.clusters
    marks = sorted(
        _Mark(each.start, -each.end, number, True, True)
        for number, cluster in enumerate(clusters, start=1)
        for each in cluster
        if 0 <= each.start < each.end <= len(text)
    )
    names = {
        number: f"cluster {number}, {len(cluster)} mention{'s' * (len(cluster) != 1)}: {_first(text, cluster)}"
        for number, cluster in enumerate(clusters, start=1)
    }
    first = {number: min((each.start, -each.end) for each in c) for number, c in enumerate(clusters, start=1) if c}
    stops = {(start, backwards, number) for number, (start, backwards) in first.items()}
    content = _content(text, marks, (0, len(text)), lambda mark: _attributes(mark, names, stops))
    numbered = [*enumerate(clusters, start=1)]
    rows = [(str(number), f"{len(cluster):,}", list_mentions(text, cluster)) for number, cluster in numbered]
    table = [folded_table("as a table", ("cluster", "mentions", "in the text"), rows)] if rows else []
    return element(
        "div",
        {"class": "lv"},
        element("style", {}, "".join(_highlight(number) for number, c in numbered if len(c) > 1)),
        element("div", {"class": "lv-text", "dir": "auto"}, *content),
        *table,
    )


def _content(text: str, marks: Sequence[_Mark], bounds: tuple[int, int], attributes: Any) -> list[Element | str]:
    """The part of a text between bounds, with the marks in it, which are in order."""
    queue, parts = list(marks), list[Element | str]()
    at, place = bounds[0], 0
    while place < len(queue):
        mark = queue[place]
        place += 1
        inner = []
        while place < len(queue) and queue[place].start < mark.end:
            other = queue[place]
            place += 1
            if other.end > mark.end:  # they cross: the rest comes after the mark
                insort(queue, other._replace(start=mark.end, begins=False), lo=place)
                other = other._replace(backwards=-mark.end, ends=False)
            inner.append(other)
        content = _content(text, inner, (mark.start, mark.end), attributes)
        number = [element("sub", {}, str(mark.cluster))] if mark.ends else []
        parts += [text[at : mark.start], element("span", attributes(mark), *content, *number)]
        at = mark.end
    return [part for part in [*parts, text[at : bounds[1]]] if part != ""]


def _attributes(mark: _Mark, names: Mapping[int, str], stops: set[tuple[int, int, int]]) -> dict[str, object]:
    number = mark.cluster
    stop = mark.begins and (mark.start, mark.backwards, number) in stops
    kinds = f"lv-m lv-m{number} lv-k{(number - 1) % COLOURS}"
    return {"class": kinds, "title": names[number], "tabindex": 0 if stop else -1}


def _highlight(number: int) -> str:
    """The rule that marks all mentions of a cluster while one has the focus, or the mouse over it."""
    kind = f".lv-m{number}"
    return f".lv:has({kind}:hover) {kind},.lv:has({kind}:focus) {kind}{{background:hsla(var(--k),75%,50%,.5)}}\n"


def _first(text: str, cluster: Sequence[DrawnMention]) -> str:
    longest = max(cluster, key=lambda each: each.end - each.start, default=None)
    return "" if longest is None else " ".join(text[longest.start : longest.end].split())


def list_mentions(text: str, cluster: Sequence[Any]) -> str:
    """The first mentions of a cluster, for a table."""
    listed = ", ".join(" ".join(text[each.start : each.end].split()) for each in cluster[:SHOWN])
    return listed + (f", and {len(cluster) - SHOWN:,} more" if len(cluster) > SHOWN else "")
