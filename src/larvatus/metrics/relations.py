"""Strict F1 of relations between spans: right are the words and types of both spans, the label and the direction.

    >>> jane, united, rome = (0, 1, "PER"), (3, 4, "ORG"), (6, 7, "LOC")
    >>> gold = [{(jane, united, "works-for"), (united, rome, "based-in")}]
    >>> relation_f1(gold, [{(jane, united, "works-for"), (rome, united, "based-in")}]).micro.f1
    0.5

Of spans that are given it is the F1 of the relations alone. What a text has several times counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from larvatus.metrics.classification import F1, ClassCounts, average
from larvatus.metrics.entities import entity_counts
from larvatus.metrics.spans import Span

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
