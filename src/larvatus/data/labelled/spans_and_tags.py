"""Spans of characters as tags of words, and back.

    to_tagged(SpanExample("Jane lives in Rome.", (Span(0, 4, "PER"),), place)).tags     # B-PER O O O O

Tags say less than spans: a span that begins or ends inside a word is widened to whole words, and of two that overlap
the longer is kept. Both are reported (`Problems`), never done unsaid.
"""

from __future__ import annotations

import numpy as np

from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import TaggedExample
from larvatus.data.labelled.span_records import Span, SpanExample
from larvatus.data.text.tag_schemes import Entity, Scheme, detect_scheme, read_leniently, write_tags
from larvatus.data.text.words import segment_words


def to_tagged(example: SpanExample, scheme: Scheme = "BIO", problems: Problems | None = None) -> TaggedExample:
    """The words of a text (`segment_words`) and a tag for each."""
    text = example.text
    spans = segment_words(text)
    taken = np.zeros(len(spans), dtype=np.bool_)
    entities: list[Entity] = []
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
        entities.append(Entity(low, high, span.label))
    words = tuple(text[start:end] for start, end in spans.tolist())
    places = tuple((start, end) for start, end in spans.tolist())
    tags = tuple(write_tags(entities, len(words), scheme))
    return TaggedExample(words, tags, example.place, text, places, example.id)


def to_spans(example: TaggedExample, scheme: Scheme | None = None) -> SpanExample:
    """The entities that tags mean, as characters of the text, read as `conlleval` does. None: their own scheme."""
    tags = example.tags or ()
    text, places = example.located()
    entities = read_leniently(tags, scheme or detect_scheme([tags]))
    spans = sorted(Span(places[start][0], places[end - 1][1], label) for start, end, label in entities)
    return SpanExample(text, tuple(spans), example.place, example.id)
