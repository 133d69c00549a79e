"""Strict F1 of entities, of spans that may nest, and of relations between spans.

Entity F1 is that of CoNLL's official scorer: an entity is right if its first word, last word and type are.

    >>> gold = [[(0, 2, "LOC"), (4, 6, "LOC"), (8, 9, "PER")]]
    >>> guess = [[(0, 2, "LOC"), (4, 5, "LOC"), (8, 9, "LOC")]]
    >>> score = entity_f1(gold, guess)
    >>> round(score.micro.f1, 3), score.errors.boundary, score.errors.type
    (0.333, 1, 1)

Entities are (start, end, label) of each text; they may nest and overlap. Tags are read in one of two ways:
`reading="lenient"` is the default of `conlleval` and `seqeval` (I-PER after O begins an entity); `reading="strict"`
counts no entity that its scheme forbids (`seqeval` with mode="strict"). `predict` and the metric `entity-f1` of
`evaluate` are lenient, the official score of CoNLL; `entity-f1-strict` is reported next to it.

Span F1 is over all spans and by depth: an outer span has depth 1, a span inside it depth 2 … By depth, recall is of the
gold spans at that depth among gold spans, precision of the predicted ones at that depth among predicted ones: an inner
span can be right although the outer one was missed.

    >>> gold = [{(0, 2, "PER"), (3, 6, "ORG"), (3, 5, "ORG")}]
    >>> score = span_f1(gold, [{(3, 6, "ORG"), (3, 5, "ORG"), (7, 8, "ORG")}])
    >>> round(score.all.micro.f1, 3), score.by_depth[2].f1
    (0.667, 1.0)

A relation is right if the words and types of both spans, the label and the direction are. With given spans, it is the
F1 of the relations only. What a text has several times counts once.

    >>> jane, united, rome = (0, 1, "PER"), (3, 4, "ORG"), (6, 7, "LOC")
    >>> gold = [{(jane, united, "works-for"), (united, rome, "based-in")}]
    >>> relation_f1(gold, [{(jane, united, "works-for"), (rome, united, "based-in")}]).micro.f1
    0.5
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import DataError
from larvatus.data.text.tag_schemes import Scheme, read_entities, read_leniently
from larvatus.metrics.classification import F1, ClassCounts, average

Entities = Collection[tuple[int, int, str]]
Labelled = Collection[tuple[Any, Any, str]]
"""Start, end and label."""


@dataclass(frozen=True)
class EntityErrors:
    """Causes of wrong predictions and missed entities; each is counted once.

    A wrong prediction and a missed entity are paired, at most one to one: the same words with another type first,
    then overlapping words with the same type, then overlapping words with another. What is left is spurious, or missed.
    """

    boundary: int
    """Type right, words overlap."""
    type: int
    """Words right, type wrong."""
    both: int
    """Words overlap, type wrong."""
    missed: int
    spurious: int


@dataclass(frozen=True)
class EntityScore:
    micro: F1
    """F1 over all entities: the score of `conlleval`."""
    macro: F1
    """Mean over types."""
    by_type: dict[str, F1]
    errors: EntityErrors


def tag_f1(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme,
    *,
    reading: Literal["strict", "lenient"],
) -> EntityScore:
    """Entity F1 of tag sequences, one for each text."""
    for index, (a, b) in enumerate(zip(gold, predicted, strict=False)):
        if len(a) != len(b):
            raise DataError(f"text {index + 1} has {len(a)} gold tags but {len(b)} predicted ones")
    read = read_entities if reading == "strict" else read_leniently
    return entity_f1([read(tags, scheme) for tags in gold], [read(tags, scheme) for tags in predicted])


def entity_f1(gold: Sequence[Entities], predicted: Sequence[Entities]) -> EntityScore:
    """Entity F1 from the entities of each text."""
    micro, macro, by_type = _averages(gold, predicted)
    return EntityScore(micro, macro, by_type, errors=entity_errors(gold, predicted))


def _averages(gold: Sequence[Labelled], predicted: Sequence[Labelled]) -> tuple[F1, F1, dict[str, F1]]:
    """Micro and macro F1 over all texts, and F1 by label."""
    labels, counts = entity_counts(gold, predicted)
    all_texts = ClassCounts(*(each.sum(0) for each in (counts.right, counts.predicted, counts.gold)))
    by_label = {label: all_texts.of(index) for index, label in enumerate(labels)}
    return average(all_texts, "micro"), average(all_texts, "macro"), by_label


def entity_counts(gold: Sequence[Labelled], predicted: Sequence[Labelled]) -> tuple[list[str], ClassCounts]:
    """Types in alphabetical order, and counts [texts, types]: what the bootstrap resamples."""
    if len(gold) != len(predicted):
        raise DataError(f"{len(gold)} texts have gold entities but {len(predicted)} have predicted ones")
    labels = sorted({label for texts in (gold, predicted) for text in texts for _, _, label in text})
    index = {label: i for i, label in enumerate(labels)}

    def count(texts: Sequence[Labelled]) -> npt.NDArray[np.int64]:
        table = np.zeros((len(texts), len(labels)), np.int64)
        for row, text in enumerate(texts):
            for _, _, label in text:
                table[row, index[label]] += 1
        return table

    left, right = [set(text) for text in gold], [set(text) for text in predicted]
    both = [a & b for a, b in zip(left, right, strict=True)]
    return labels, ClassCounts(right=count(both), predicted=count(right), gold=count(left))


def entity_errors(gold: Sequence[Entities], predicted: Sequence[Entities]) -> EntityErrors:
    total: Counter[str] = Counter()
    for a, b in zip(gold, predicted, strict=True):
        total.update(_errors_of_text(set(a), set(b)))
    return EntityErrors(**{kind: total[kind] for kind in ("boundary", "type", "both", "missed", "spurious")})


def _errors_of_text(gold: set[tuple[int, int, str]], predicted: set[tuple[int, int, str]]) -> Counter[str]:
    missed, wrong = sorted(gold - predicted), sorted(predicted - gold)
    errors: Counter[str] = Counter()
    for kind in ("type", "boundary", "both"):
        for guess in tuple(wrong):
            # of several partners the one that shares most words, the earliest of equals
            partner = max(
                (entity for entity in missed if _kind(entity, guess) == kind),
                key=lambda entity: _shared(entity, guess),
                default=None,
            )
            if partner is not None:
                missed.remove(partner)
                wrong.remove(guess)
                errors[kind] += 1
    errors.update(missed=len(missed), spurious=len(wrong))
    return errors


def _shared(a: tuple[int, int, str], b: tuple[int, int, str]) -> int:
    return min(a[1], b[1]) - max(a[0], b[0])


def _kind(a: tuple[int, int, str], b: tuple[int, int, str]) -> str | None:
    if a[:2] == b[:2]:
        return "type"
    if _shared(a, b) <= 0:
        return None
    return "boundary" if a[2] == b[2] else "both"


Span = tuple[int, int, str]


@dataclass(frozen=True)
class SpanScore:
    all: EntityScore
    by_depth: dict[int, F1]


def span_f1(gold: Sequence[Entities], predicted: Sequence[Entities]) -> SpanScore:
    """Span F1 from the spans of each text."""
    score = entity_f1(gold, predicted)
    counts: Counter[tuple[str, int]] = Counter()
    for wanted, guess in zip(gold, predicted, strict=True):
        for name, spans, others in (("gold", set(wanted), set(guess)), ("predicted", set(guess), set(wanted))):
            for span, depth in depths(spans).items():
                counts[name, depth] += 1
                counts[f"right {name}", depth] += span in others
    return SpanScore(score, {depth: _at(counts, depth) for depth in sorted({depth for _, depth in counts})})


def _at(counts: Counter[tuple[str, int]], depth: int) -> F1:
    precision = counts["right predicted", depth] / max(1, counts["predicted", depth])
    recall = counts["right gold", depth] / max(1, counts["gold", depth])
    both = precision + recall
    return F1(precision, recall, 2 * precision * recall / both if both else 0.0, counts["gold", depth])


def depths(spans: Entities) -> dict[Span, int]:
    """Depth of each span: 1 + the number of longer spans that contain it.

    >>> depths([(3, 5, "ORG"), (3, 6, "ORG"), (0, 2, "PER")])
    {(0, 2, 'PER'): 1, (3, 6, 'ORG'): 1, (3, 5, 'ORG'): 2}
    """
    order = sorted(set(spans), key=lambda span: (span[0], -span[1], span[2]))
    by_span: dict[Span, int] = {}
    open_spans: list[Span] = []
    for span in order:
        open_spans = [other for other in open_spans if other[1] > span[0]]  # the others end before it begins
        holders = (other for other in open_spans if other[1] >= span[1] and other[:2] != span[:2])
        by_span[span] = 1 + sum(1 for _ in holders)
        open_spans.append(span)
    return by_span


Relations = Collection[tuple[Span, Span, str]]
"""Head, tail, label."""


@dataclass(frozen=True)
class RelationScore:
    micro: F1
    macro: F1
    by_label: dict[str, F1]


def relation_f1(gold: Sequence[Relations], predicted: Sequence[Relations]) -> RelationScore:
    """Relation F1 from the relations of each text."""
    return RelationScore(*_averages(gold, predicted))
