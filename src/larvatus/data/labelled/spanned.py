"""Words with labelled spans of them, from every notation, and the ways between these.

    train = read_spanned("train.iob2.xz")              # BIO of several levels (GermEval): a column for each
    train = read_spanned("train.conllu")               # brackets, Entity= (GUM)
    train = read_spanned("annotations/")               # brat; JSONL and Parquet with spans of characters, too

| to | by |
| --- | --- |
| characters | `to_characters` |
| words | `to_words` |
| BIO of several levels | `bio_levels.level_lines` |
| CoNLL-U with brackets | `entity_brackets.bracket_lines` |
| JSONL | `standoff.span_lines(to_characters(example) for example in …)` |
| brat | `ann_lines(to_characters(example))` |

A span that begins or ends inside a word is reported, and widened to whole words: it is not dropped. Relations between
spans go with characters, words, JSONL and brat; columns and brackets have no place for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from larvatus.core.errors import DataError
from larvatus.data.labelled.conll import read_levels
from larvatus.data.labelled.conllu import read_brackets
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, source_name
from larvatus.data.labelled.span_records import Span, SpanExample, SpannedWords
from larvatus.data.labelled.standoff import renumber_relations
from larvatus.data.labelled.tagged import format_of, read_spans
from larvatus.data.labelled.texts import Paths, path_strings
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.data.text.words import segment_words

SpanFormat = Literal["conll", "conllu", "jsonl", "parquet", "brat"]
BINARY = "SPAN"
"""The type of all spans, where types are not told apart."""


def read_spanned(
    paths: Paths,
    *,
    format: SpanFormat | None = None,
    word: int | None = None,
    tags: Sequence[int] | None = None,
    problems: Problems | None = None,
) -> Dataset[SpannedWords]:
    """Texts of words with spans. `word` and `tags` are columns of CoNLL, from 1; the format is told by the name."""
    examples: list[SpannedWords] = []
    said: dict[str, None] = {}
    names = path_strings(paths)
    for name in names:
        kind = format or format_of(name) or "conll"
        if kind == "conll":
            part, how = read_levels(name, word=word, tags=tags, problems=problems)
        elif kind == "conllu":
            part, how = read_brackets(name, problems)
        else:
            texts = read_spans([name], format=kind, problems=problems)
            part, how = [to_words(example, problems) for example in texts], texts.columns
        examples += [example for example in part if example.words]
        said[how] = None
    source = ", ".join(source_name(name) for name in names)
    if not examples:
        raise DataError(f"{source}: no text can be used{cause(problems)}; give texts with spans")
    return Dataset(tuple(examples), source, "; ".join(said))


def to_words(example: SpanExample, problems: Problems | None = None) -> SpannedWords:
    """The words of a text (`segment_words`), and its spans as spans of these."""
    text, spans = example.text, segment_words(example.text)
    entities: list[EntitySpan | None] = []
    for span in example.spans:
        low = int(np.searchsorted(spans[:, 1], span.start, side="right"))
        high = int(np.searchsorted(spans[:, 0], span.end, side="left"))
        said = f"{span.label} {text[span.start : span.end]!r} ({span.start} to {span.end})"
        if low >= high:
            fault(problems, "span without a word", example.place, f"{said} covers no word")
            entities.append(None)
            continue
        start, end = int(spans[low, 0]), int(spans[high - 1, 1])
        if start < span.start or end > span.end:
            fault(problems, "span cuts a word", example.place, f"{said} cuts a word; it is read as {text[start:end]!r}")
        entities.append(EntitySpan(low, high, span.label))
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
