"""Examples with labelled spans, of characters or of words, and relations between them.

SpanExample("Mt. Sanitas", (Span(0, 11, "LOC"),), Place("train.jsonl", 1))
SpannedWords(("Mt.", "Sanitas"), (Entity(0, 2, "LOC"),), Place("train.conllu", 1))

Spans of characters as tags of words, and back.

    to_tagged(SpanExample("Jane lives in Rome.", (Span(0, 4, "PER"),), place)).tags     # B-PER O O O O

Tags say less than spans: a span that begins or ends inside a word is widened to whole words, and of two that overlap
the longer is kept. Both are reported (`Problems`), never done unsaid.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import LabelledExample, Place, TaggedExample, first_names
from larvatus.data.text.align import join_words
from larvatus.data.text.tag_schemes import EntitySpan, Scheme, detect_scheme, read_leniently, write_tags
from larvatus.data.text.words import segment_words


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters [start, end) of a text, and what they are."""

    start: int
    end: int
    label: str


class SpanRelation(NamedTuple):
    """What a span, the head, is to another of its text, the tail; each is the number of a span of the example."""

    head: int
    tail: int
    label: str


@dataclass(frozen=True, slots=True)
class SpanExample(LabelledExample):
    """A text and labelled spans of its characters, sorted; they may nest, overlap or be none."""

    labels_are: ClassVar = "spans"
    stratified: ClassVar = "type"

    text: str
    spans: tuple[Span, ...]
    place: Place
    id: str | None = None
    relations: tuple[SpanRelation, ...] = ()

    def __post_init__(self) -> None:
        _refuse_relations(self.relations, len(self.spans), self.place)

    def names(self) -> Iterable[str]:
        return [span.label for span in self.spans]

    def relation_names(self) -> Iterable[str]:
        return [label for _, _, label in self.relations]

    def reads(self) -> str:
        return self.text

    def answer(self) -> object:
        return self.spans

    def strata(self) -> set[str]:
        return {*self.names(), *(f"relation {label}" for label in self.relation_names())}

    def contents(self) -> list[Any]:
        return [self.text, [[span.start, span.end, span.label] for span in self.spans], self.relations]


@dataclass(frozen=True, slots=True)
class SpannedWords(LabelledExample):
    """The words of a text and labelled spans of them, sorted; they may nest, overlap or be none."""

    labels_are: ClassVar = "spans"
    stratified: ClassVar = "type"

    words: tuple[str, ...]
    spans: tuple[EntitySpan, ...] | None
    """Words [start, end) and what they are; None where nobody knows."""
    place: Place
    text: str | None = None
    """The text as it was written; None: words with single spaces between them."""
    places: tuple[tuple[int, int], ...] | None = None
    """Characters of each word in `text`, start and end; None where `text` is."""
    id: str | None = None
    relations: tuple[SpanRelation, ...] = ()

    def __post_init__(self) -> None:
        _refuse_relations(self.relations, len(self.spans or ()), self.place)
        if (self.text is None) != (self.places is None) or len(self.places or self.words) != len(self.words):
            raise DataError(f"{self.place}: a text goes with the characters of each of its words; give both or neither")
        for start, end, label in self.spans or ():
            if not 0 <= start < end <= len(self.words):
                said = f"span {start} to {end} ({label})"
                raise DataError(f"{self.place}: {said} is empty or outside its text of {len(self.words):,} words")

    def names(self) -> Iterable[str]:
        return [span.label for span in self.spans or ()]

    def relation_names(self) -> Iterable[str]:
        return [label for _, _, label in self.relations]

    def reads(self) -> str:
        return self.text if self.text is not None else " ".join(self.words)

    def word_count(self) -> int | None:
        return len(self.words)

    def answer(self) -> object:
        return self.spans

    def answer_shown(self) -> str:
        return first_names([f"{start}–{end} {label}" for start, end, label in self.spans or ()])

    def key(self) -> Hashable:
        return self.words

    def strata(self) -> set[str]:
        return {*self.names(), *(f"relation {label}" for label in self.relation_names())}

    def contents(self) -> list[Any]:
        return [self.words, self.spans, *([self.relations] if self.relations else [])]

    def located(self) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text and the characters of each word in it: as written, or with single spaces between words."""
        if self.text is not None and self.places is not None:
            return self.text, self.places
        text, spans = join_words(self.words)
        return text, tuple((start, end) for start, end in spans.tolist())


def _refuse_relations(relations: tuple[SpanRelation, ...], spans: int, place: Place) -> None:
    for head, tail, label in relations:
        if not (0 <= head < spans and 0 <= tail < spans):
            raise DataError(f"{place}: the relation {label!r} joins spans {head} and {tail}, but there are {spans:,}")
        if head == tail:
            raise DataError(f"{place}: the relation {label!r} joins span {head} with itself; give it two spans")


def to_tagged(example: SpanExample, scheme: Scheme = "BIO", problems: Problems | None = None) -> TaggedExample:
    """The words of a text (`segment_words`) and a tag for each."""
    text = example.text
    spans = segment_words(text)
    taken = np.zeros(len(spans), dtype=np.bool_)
    entities: list[EntitySpan] = []
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
        entities.append(EntitySpan(low, high, span.label))
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
