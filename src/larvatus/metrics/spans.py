"""Strict F1 of spans that may nest, over all and by depth: an outer span has depth 1, what stands in it depth 2 …

    >>> gold = [{(0, 2, "PER"), (3, 6, "ORG"), (3, 5, "ORG")}]
    >>> score = span_f1(gold, [{(3, 6, "ORG"), (3, 5, "ORG"), (7, 8, "ORG")}])
    >>> round(score.all.micro.f1, 3), score.by_depth[2].f1
    (0.667, 1.0)

A span is right if its first word, last word and type are (`metrics/entities.py`). By depth, recall is of the gold spans
at that depth among gold spans, precision of the predicted ones at that depth among predicted ones: an inner span that
is found is found, though the outer one was missed.

Strict F1 of relations between spans: right are the words and types of both spans, the label and the direction.

    >>> jane, united, rome = (0, 1, "PER"), (3, 4, "ORG"), (6, 7, "LOC")
    >>> gold = [{(jane, united, "works-for"), (united, rome, "based-in")}]
    >>> relation_f1(gold, [{(jane, united, "works-for"), (rome, united, "based-in")}]).micro.f1
    0.5

Of spans that are given it is the F1 of the relations alone. What a text has several times counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from larvatus.metrics.classification import F1, ClassCounts, average
from larvatus.metrics.entities import Entities, EntityScore, entity_counts, entity_f1

Span = tuple[int, int, str]


@dataclass(frozen=True)
class SpanScore:
    all: EntityScore
    by_depth: dict[int, F1]


def span_f1(gold: Sequence[Entities], predicted: Sequence[Entities]) -> SpanScore:
    """Of the spans of each text."""
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
    """How deep each span stands: 1 + the number of longer spans that hold it.

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
    """Of the relations of each text."""
    labels, counts = entity_counts(gold, predicted)
    all_texts = ClassCounts(*(each.sum(0) for each in (counts.right, counts.predicted, counts.gold)))
    return RelationScore(
        micro=average(all_texts, "micro"),
        macro=average(all_texts, "macro"),
        by_label={label: all_texts.of(index) for index, label in enumerate(labels)},
    )
