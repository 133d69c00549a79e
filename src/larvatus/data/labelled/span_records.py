"""Examples with labelled spans, of characters or of words, relations between them, and conversions.

    SpanExample("Mt. Sanitas", (Span(0, 11, "LOC"),), Place("train.jsonl", 1))
    SpannedWords(("Mt.", "Sanitas"), (Entity(0, 2, "LOC"),), Place("train.conllu", 1))
    to_tagged(SpanExample("Jane lives in Rome.", (Span(0, 4, "PER"),), place)).tags     # B-PER O O O O

| to | by |
| --- | --- |
| characters | `to_characters` |
| words | `to_words` |
| tags of words | `to_tagged` |
| BIO of several levels | `conll.level_lines` |
| CoNLL-U with brackets | `conllu.bracket_lines` |
| JSONL | `standoff.span_lines(to_characters(example) for example in …)` |
| brat | `ann_lines(to_characters(example))` |

A span that begins or ends inside a word is widened to whole words; of two that overlap, tags keep the longer. Both are
reported (`Problems`). Relations between spans are kept in characters, words, JSONL and brat; columns and brackets
cannot hold them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Dataset, LabelledExample, Place, TaggedExample, WordsExample, first_names
from larvatus.data.text.tag_schemes import EntitySpan, Scheme, write_tags
from larvatus.data.text.words import segment_words

BINARY = "SPAN"
"""The type of all spans, where types are not distinguished."""


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
class SpannedWords(WordsExample):
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

    @property
    def word_places(self) -> tuple[tuple[int, int], ...] | None:
        return self.places

    def names(self) -> Iterable[str]:
        return [span.label for span in self.spans or ()]

    def relation_names(self) -> Iterable[str]:
        return [label for _, _, label in self.relations]

    def answer(self) -> object:
        return self.spans

    def answer_shown(self) -> str:
        return first_names([f"{start}–{end} {label}" for start, end, label in self.spans or ()])

    def strata(self) -> set[str]:
        return {*self.names(), *(f"relation {label}" for label in self.relation_names())}

    def contents(self) -> list[Any]:
        return [self.words, self.spans, *([self.relations] if self.relations else [])]


def _refuse_relations(relations: tuple[SpanRelation, ...], spans: int, place: Place) -> None:
    for head, tail, label in relations:
        if not (0 <= head < spans and 0 <= tail < spans):
            raise DataError(f"{place}: the relation {label!r} joins spans {head} and {tail}, but there are {spans:,}")
        if head == tail:
            raise DataError(f"{place}: the relation {label!r} joins span {head} with itself; give it two spans")


def renumber_relations(
    relations: Iterable[SpanRelation], numbers: Sequence[int | None]
) -> tuple[tuple[SpanRelation, ...], int]:
    """Relations of spans that have new numbers, None where they are gone; and how many relations go with them.

    Spans that have become one are not related to themselves.
    """
    kept, lost = set(), 0
    for head, tail, label in relations:
        a, b = numbers[head], numbers[tail]
        if a is None or b is None or a == b:
            lost += 1
        else:
            kept.add(SpanRelation(a, b, label))
    return tuple(sorted(kept)), lost


def to_tagged(example: SpanExample, scheme: Scheme = "BIO", problems: Problems | None = None) -> TaggedExample:
    """The words of a text (`segment_words`) and a tag for each."""
    text = example.text
    spans = segment_words(text)
    taken = np.zeros(len(spans), dtype=np.bool_)
    entities: list[EntitySpan] = []
    for span in sorted(example.spans, key=lambda span: (span.start - span.end, span.start, span.label)):
        entity = _whole_words(span, example, spans, problems, read="as tags it is")
        if entity is None:
            continue
        if taken[entity.start : entity.end].any():
            message = f"{_described(span, text)} overlaps a longer span, and tags hold one"
            fault(problems, "spans overlap", example.place, message)
            continue
        taken[entity.start : entity.end] = True
        entities.append(entity)
    words = tuple(text[start:end] for start, end in spans.tolist())
    places = tuple((start, end) for start, end in spans.tolist())
    tags = tuple(write_tags(entities, len(words), scheme))
    return TaggedExample(words, tags, example.place, text, places, example.id)


def _whole_words(
    span: Span, example: SpanExample, words: Ints, problems: Problems | None, *, read: str
) -> EntitySpan | None:
    """The words [W, 2] that a span covers, or None; `read` describes in an error a span that cuts a word."""
    low = int(np.searchsorted(words[:, 1], span.start, side="right"))
    high = int(np.searchsorted(words[:, 0], span.end, side="left"))
    described = _described(span, example.text)
    if low >= high:
        fault(problems, "span without a word", example.place, f"{described} covers no word")
        return None
    start, end = int(words[low, 0]), int(words[high - 1, 1])
    if start < span.start or end > span.end:
        message = f"{described} cuts a word; {read} {example.text[start:end]!r}"
        fault(problems, "span cuts a word", example.place, message)
    return EntitySpan(low, high, span.label)


def _described(span: Span, text: str) -> str:
    return f"{span.label} {text[span.start : span.end]!r} ({span.start} to {span.end})"


def to_words(example: SpanExample, problems: Problems | None = None) -> SpannedWords:
    """The words of a text (`segment_words`), and its spans as spans of these."""
    text, spans = example.text, segment_words(example.text)
    entities = [_whole_words(span, example, spans, problems, read="it is read as") for span in example.spans]
    kept = sorted({entity for entity in entities if entity is not None})
    number = {entity: n for n, entity in enumerate(kept)}
    relations, lost = renumber_relations(
        example.relations, [None if entity is None else number[entity] for entity in entities]
    )
    if lost:
        said = f"{lost:,} relations join spans that cover no word, or the same words"
        fault(problems, "relation without its spans", example.place, said)
    places = tuple((start, end) for start, end in spans.tolist())
    words = tuple(text[start:end] for start, end in places)
    return SpannedWords(words, tuple(kept), example.place, text, places, example.id, relations)


def to_characters(example: SpannedWords) -> SpanExample:
    """The same spans as characters of the text."""
    text, places = example.located()
    spans = [Span(places[start][0], places[end - 1][1], label) for start, end, label in example.spans or ()]
    order = sorted(range(len(spans)), key=lambda n: (spans[n], n))
    relations, _ = renumber_relations(example.relations, np.argsort(order).tolist())
    return SpanExample(text, tuple(spans[n] for n in order), example.place, example.id, relations)


def ann_lines(example: SpanExample) -> Iterator[str]:
    """The spans of a text and their relations as brat's .ann lines; the text itself is its .txt file."""
    for label in [*(span.label for span in example.spans), *(label for _, _, label in example.relations)]:
        if len(label.split()) != 1:
            raise DataError(f"{example.place}: brat cannot write the label {label!r}, which holds a space; rename it")
    for number, span in enumerate(example.spans, start=1):
        words = " ".join(example.text[span.start : span.end].split())
        yield f"T{number}\t{span.label} {span.start} {span.end}\t{words}"
    for number, (head, tail, label) in enumerate(example.relations, start=1):
        yield f"R{number}\t{label} Arg1:T{head + 1} Arg2:T{tail + 1}"


def binary(data: Dataset[SpannedWords], label: str = BINARY) -> Dataset[SpannedWords]:
    """Spans of all types as spans of one: whether words are something, not what (binary identification)."""
    collapsed = [_of_one_type(example, label) for example in data]
    return dataclasses.replace(data, examples=tuple(collapsed), notes=(*data.notes, f"all types read as {label}"))


def _of_one_type(example: SpannedWords, label: str) -> SpannedWords:
    """Spans of the same words become one; a relation between two such is none."""
    if example.spans is None:
        return example
    spans = sorted({EntitySpan(start, end, label) for start, end, _ in example.spans})
    number = {span: n for n, span in enumerate(spans)}
    relations, _ = renumber_relations(
        example.relations, [number[EntitySpan(start, end, label)] for start, end, _ in example.spans]
    )
    return dataclasses.replace(example, spans=tuple(spans), relations=relations)
