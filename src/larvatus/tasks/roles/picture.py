"""Semantic roles as layers under the words: a row for each predicate, with bars for its roleset and its arguments.

draw_frames(sentence.to_dict())           # an `Element`

Each sentence is a strip. Columns are cut at spaces and where bars begin and end, so a bar is exactly as wide as
its words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core.drawing import (
    LABEL_SIZE,
    Element,
    Strip,
    colour_class,
    element,
    first_units,
    folded_table,
    label,
    scroll_box,
    text_width,
)
from larvatus.core.errors import UsageError
from larvatus.data.text.words import sentence_spans

LAYER = 25.0
BAR = 19.0
PAD = 12.0


class DrawnSpan(Struct):
    start: int
    end: int


class DrawnArgument(DrawnSpan):
    role: str


class DrawnFrame(Struct):
    predicate: DrawnSpan
    roleset: str
    arguments: list[DrawnArgument]

    @property
    def bars(self) -> list[tuple[int, int, str, str]]:
        """Characters, text and class of each bar."""
        predicate = (self.predicate.start, self.predicate.end, self.roleset, "lv-bar lv-predicate")
        roles = ((each.start, each.end, each.role, f"lv-bar {colour_class(each.role)}") for each in self.arguments)
        return [predicate, *roles]


class DrawnFrames(Struct):
    text: str
    frames: list[DrawnFrame]


def draw_frames(record: Mapping[str, Any]) -> Element:
    """The sentences of a record of `TextFrames` with their frames, and a table of these."""
    labelled = msgspec.convert(record, DrawnFrames)
    text, frames = labelled.text, labelled.frames
    for frame in frames:
        for start, end, name, _ in frame.bars:
            if not 0 <= start < end <= len(text):
                raise UsageError(f"{name} has the characters {start} to {end} of a text of {len(text)}")
    sentences = _sentences(text, frames)
    drawn, note = first_units(sentences, (text.count(" ", start, end) + 1 for start, end, _ in sentences), "sentences")
    boxes = [
        scroll_box(f"Roles in sentence {number}", draw_layers(text, start, end, inside))
        for number, (start, end, inside) in enumerate(drawn, start=1)
    ]
    rows = [
        (text[frame.predicate.start : frame.predicate.end], frame.roleset, *cells)
        for _, _, inside in drawn
        for frame in inside
        for cells in [(each.role, text[each.start : each.end]) for each in frame.arguments] or [("", "")]
    ]
    table = folded_table("as a table", ("predicate", "roleset", "role", "argument"), rows)
    return element("div", {"class": "lv"}, *boxes, *note, *([table] if frames else []))


def draw_layers(text: str, start: int, end: int, frames: Sequence[DrawnFrame]) -> Element:
    """The words of a part of a text over the layers of its frames."""
    edges = sorted({edge for frame in frames for first, last, _, _ in frame.bars for edge in (first, last)})
    tokens = _tokens(text, start, end, edges)
    starts, ends = [token[0] for token in tokens], [token[1] for token in tokens]
    layers = [
        [
            (bisect_right(ends, first), bisect_right(starts, last - 1) - 1, name, kind)
            for first, last, name, kind in frame.bars
        ]
        for frame in frames
    ]
    needs = [
        (2 * first, 2 * last + 1, text_width(name, LABEL_SIZE) + PAD)
        for layer in layers
        for first, last, name, _ in layer
    ]
    joined = [number for number in range(1, len(tokens)) if starts[number] == ends[number - 1]]
    strip = Strip([text[first:last] for first, last in tokens], needs=needs, joined=joined)
    parts = []
    for number, layer in enumerate(layers):
        y = 30 + LAYER * number
        line = {"class": "lv-line", "x1": 0, "x2": strip.width, "y1": y + BAR / 2, "y2": y + BAR / 2}
        parts += [element("line", line), *(_bar(strip, bar, y) for bar in layer if bar[0] <= bar[1])]
    return strip.svg(32 + LAYER * len(layers), *parts, *strip.texts(18))


def _bar(strip: Strip, bar: tuple[int, int, str, str], y: float) -> Element:
    first, last, name, kind = bar
    low, high = strip.interval(first, last)
    rect = {"x": low + 1.5, "y": y, "width": high - low - 3, "height": BAR}
    title = element("title", {}, f"{name}: {' '.join(strip.words[first : last + 1])}")
    return element("g", {"class": kind}, title, element("rect", rect), label(name, (low + high) / 2, y + 13.5))


def _sentences(text: str, frames: Sequence[DrawnFrame]) -> list[tuple[int, int, list[DrawnFrame]]]:
    """Characters of the sentences with the frames of each; sentences are joined where a frame is in both."""
    reach = [
        (min(each[0] for each in frame.bars), max(each[1] for each in frame.bars), frame)
        for frame in sorted(frames, key=lambda frame: frame.predicate.start)
    ]
    joined: list[tuple[int, int]] = []
    crossing = sorted((low, high) for low, high, _ in reach)
    for span in sorted([*sentence_spans(text), *crossing]):
        if joined and span[0] < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span[1]))
        else:
            joined.append(span)
    starts = [start for start, _ in joined]
    frames_of: list[list[DrawnFrame]] = [[] for _ in joined]
    for low, _, frame in reach:
        frames_of[bisect_right(starts, low) - 1].append(frame)
    return [(start, end, inside) for (start, end), inside in zip(joined, frames_of, strict=True)]


def _tokens(text: str, start: int, end: int, edges: Sequence[int]) -> list[tuple[int, int]]:
    """Parts of a text without spaces, which end where a bar begins or ends."""
    inside = set(edges)
    words = re.finditer(r"\S+", text[start:end])
    cuts = [(start + word.start(), start + word.end()) for word in words]
    return [
        (low, high)
        for first, last in cuts
        for places in [[first, *(edge for edge in range(first + 1, last) if edge in inside), last]]
        for low, high in pairwise(places)
    ]
