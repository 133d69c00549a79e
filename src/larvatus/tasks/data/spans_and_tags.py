"""Spans of characters as tags of words, and back.

    to_tagged(SpanExample("Jane lives in Rome.", (Span(0, 4, "PER"),), place)).tags     # B-PER O O O O

Tags say less than spans: a span that begins or ends inside a word is widened to whole words, and of two that overlap
the longer is kept. Both are reported (`Problems`), never done unsaid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from larvatus.tasks.data.problems import Problems, fault
from larvatus.tasks.data.records import Span, SpanExample, TaggedExample
from larvatus.text.words import segment_words

Scheme = Literal["bio", "bioes"]


def to_tagged(example: SpanExample, scheme: Scheme = "bio", problems: Problems | None = None) -> TaggedExample:
    """The words of a text (`segment_words`) and a tag for each."""
    text = example.text
    spans = segment_words(text)
    taken = np.zeros(len(spans), dtype=np.bool_)
    tags = ["O"] * len(spans)
    for span in sorted(example.spans, key=lambda span: (span.start - span.end, span.start, span.label)):
        low = int(np.searchsorted(spans[:, 1], span.start, side="right"))
        high = int(np.searchsorted(spans[:, 0], span.end, side="left"))
        said = f"{span.label} {text[span.start : span.end]!r} ({span.start} to {span.end})"
        if low >= high:
            fault(problems, "span without a word", example.place, f"{said} covers no word")
            continue
        start, end = int(spans[low, 0]), int(spans[high - 1, 1])
        if start < span.start or end > span.end:
            message = f"{said} cuts a word; as tags it is {text[start:end]!r}"
            fault(problems, "span cuts a word", example.place, message)
        if taken[low:high].any():
            fault(problems, "spans overlap", example.place, f"{said} overlaps a longer span, and tags hold one")
            continue
        taken[low:high] = True
        tags[low:high] = _tags(span.label, high - low, scheme)
    words = tuple(text[start:end] for start, end in spans.tolist())
    places = tuple((start, end) for start, end in spans.tolist())
    return TaggedExample(words, tuple(tags), example.place, text, places, example.id)


def _tags(label: str, length: int, scheme: Scheme) -> list[str]:
    if scheme == "bio":
        return [f"B-{label}"] + [f"I-{label}"] * (length - 1)
    if length == 1:
        return [f"S-{label}"]
    return [f"B-{label}"] + [f"I-{label}"] * (length - 2) + [f"E-{label}"]


def to_spans(example: TaggedExample) -> SpanExample:
    """The entities that tags mean, as characters of the text; IOB1, BIO and BIOES alike, read as conlleval does."""
    text, places = example.located()
    found = [Span(places[first][0], places[last][1], label) for first, last, label in entities(example.tags or ())]
    return SpanExample(text, tuple(sorted(found)), example.place, example.id)


def entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """First word, last word and type of each entity."""
    found: list[tuple[int, int, str]] = []
    open_at, open_type = -1, ""
    for index, tag in enumerate([*tags, "O"]):
        mark, _, label = tag.partition("-")
        goes_on = open_at >= 0 and mark in ("I", "E") and label == open_type
        if open_at >= 0 and not goes_on:
            found.append((open_at, index - 1, open_type))
            open_at = -1
        if tag != "O" and not goes_on:
            open_at, open_type = index, label
        if open_at >= 0 and mark in ("E", "S"):
            found.append((open_at, index, open_type))
            open_at = -1
    return found
