"""A tree as arcs above its words: from each head to its dependents, with the relation on the arc.

draw_trees(doc.to_dict())           # an `Element`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core.drawing import (
    LABEL_SIZE,
    Element,
    Strip,
    arc_levels,
    element,
    first_units,
    folded_table,
    label,
    scroll_box,
    text_width,
)
from larvatus.core.errors import UsageError

STEP = 21.0
"""Pixels between the levels of arcs."""
PORT = 8.0
"""Pixels between arcs at a word, at most."""
ROUND = 10.0
COLUMNS = ("sentence", "id", "word", "lemma", "upos", "feats", "head", "relation")


class DrawnWord(Struct):
    text: str
    head: int
    relation: str
    lemma: str | None = None
    upos: str | None = None
    feats: dict[str, str] | None = None


class DrawnTree(Struct):
    words: list[DrawnWord]


class DrawnTrees(Struct):
    sentences: list[DrawnTree]


def draw_trees(record: Mapping[str, Any]) -> Element:
    """The trees of all sentences of a record of `Parsed`, and their table."""
    trees = [sentence.words for sentence in msgspec.convert(record, DrawnTrees).sentences]
    drawn, note = first_units(trees, map(len, trees), "sentences")
    boxes = [scroll_box(f"Tree of sentence {number}", draw_tree(words)) for number, words in enumerate(drawn, start=1)]
    rows = [row for number, words in enumerate(drawn, start=1) for row in _rows(number, words)]
    used = [place for place, name in enumerate(COLUMNS) if name in ("id", "head") or any(row[place] for row in rows)]
    table = ([row[place] for place in used] for row in rows)
    return element(
        "div", {"class": "lv"}, *boxes, *note, folded_table("as a table", [COLUMNS[each] for each in used], table)
    )


def draw_tree(words: Sequence[DrawnWord]) -> Element:
    """The words of a sentence with an arc to each from its head, and an arrow to the root."""
    for word in words:
        if not 0 <= word.head <= len(words):
            raise UsageError(f"the head of {word.text!r} is word {word.head} of {len(words)}; heads are from 0 to that")
    arcs = [(word.head - 1, number) for number, word in enumerate(words)]
    spans = {arc: (min(arc), max(arc)) for arc in arcs if arc[0] >= 0}
    room = [text_width(word.relation, LABEL_SIZE) + 2 * PORT + ROUND for word in words]
    needs = [(2 * first + 1, 2 * last, room[arc[1]]) for arc, (first, last) in spans.items() if first < last]
    needs += [(2 * number, 2 * number + 1, room[number]) for head, number in arcs if head < 0]
    tags = [word.upos or "" for word in words]
    strip = Strip([word.text for word in words], labels=tags, needs=needs)
    levels = dict(zip(spans, arc_levels([*spans.values()]), strict=True))
    top = 1 + max(levels.values(), default=0)
    base = STEP * (top + 1)
    ports = _ports(arcs, strip)
    by_height = sorted(arcs, key=lambda arc: -levels.get(arc, top))  # labels cover the lines of higher arcs
    parts = [_arc(words, arc, ports[arc], base=base, y=base - STEP * levels.get(arc, top)) for arc in by_height]
    below = [label(tag, strip.centre(number), base + 36) for number, tag in enumerate(tags) if tag]
    return strip.svg(base + (44 if below else 28), *parts, *strip.texts(base + 18), *below)


def _ports(arcs: Sequence[tuple[int, int]], strip: Strip) -> dict[tuple[int, int], tuple[float, float]]:
    """Where each arc leaves its head and reaches its dependent: next to each other, so that arcs do not cross there."""
    ends: dict[int, list[tuple[int, int]]] = {}
    for arc in arcs:
        for word in {*arc} - {-1}:
            ends.setdefault(word, []).append(arc)
    places: dict[tuple[tuple[int, int], int], float] = {}
    for word, touching in ends.items():
        order = sorted(touching, key=lambda arc: _port_order(arc, word))
        low, high = strip.interval(word, word)
        step = min(PORT, (high - low) / (len(order) + 1)) * (-1 if strip.right_to_left else 1)
        for number, arc in enumerate(order):
            places[arc, word] = strip.centre(word) + step * (number - (len(order) - 1) / 2)
    return {arc: (places[arc, arc[0] if arc[0] >= 0 else arc[1]], places[arc, arc[1]]) for arc in arcs}


def _port_order(arc: tuple[int, int], word: int) -> tuple[int, int]:
    """Arcs to earlier words first, short before long; then the root's arrow; then arcs to later words, long first."""
    if arc[0] < 0:
        return 1, 0
    other = arc[0] + arc[1] - word
    return (0, word - other) if other < word else (2, word - other)


def _arc(
    words: Sequence[DrawnWord], arc: tuple[int, int], port: tuple[float, float], *, base: float, y: float
) -> Element:
    """The line from a head to its dependent, with its arrow and relation."""
    head, dependent = arc
    start, end = port
    word = words[dependent]
    if head < 0:
        line = f"M{end:.1f} {y:.1f}V{base - 5:.1f}"
        name = f"{word.text} is the root"
    else:
        bend = min(ROUND, abs(end - start) / 2) * (1 if end > start else -1)
        drop = min(ROUND, base - y - 6)
        line = (
            f"M{start:.1f} {base:.1f}V{y + drop:.1f}Q{start:.1f} {y:.1f} {start + bend:.1f} {y:.1f}"
            f"H{end - bend:.1f}Q{end:.1f} {y:.1f} {end:.1f} {y + drop:.1f}V{base - 5:.1f}"
        )
        name = f"{words[head].text} –{word.relation}→ {word.text}"
    arrow = f"{end:.1f},{base + 1:.1f} {end - 3.5:.1f},{base - 7:.1f} {end + 3.5:.1f},{base - 7:.1f}"
    return element(
        "g",
        {"class": "lv-arc"},
        element("title", {}, name),
        element("path", {"d": line}),
        element("polygon", {"points": arrow}),
        label(word.relation, (start + end) / 2, y - 5),
    )


def _rows(number: int, words: Sequence[DrawnWord]) -> list[tuple[str, ...]]:
    """Rows of the table."""
    return [
        (
            str(number),
            str(place),
            word.text,
            word.lemma or "",
            word.upos or "",
            "|".join(f"{name}={value}" for name, value in (word.feats or {}).items()),
            f"{word.head} {words[word.head - 1].text}" if word.head else "0",
            word.relation,
        )
        for place, word in enumerate(words, start=1)
    ]
