"""Entity F1 as the official scorer of CoNLL has it: an entity is right if its first word, last word and type are.

    >>> gold = [[(0, 2, "LOC"), (4, 6, "LOC"), (8, 9, "PER")]]
    >>> guess = [[(0, 2, "LOC"), (4, 5, "LOC"), (8, 9, "LOC")]]
    >>> score = entity_f1(gold, guess)
    >>> round(score.micro.f1, 3), score.errors.boundary, score.errors.type
    (0.333, 1, 1)

Entities are (start, end, label) of each text; they may nest and overlap. Tags are read in one
of two ways: `reading="lenient"` is what `conlleval` and `seqeval` by default do (I-PER after O begins an entity);
`reading="strict"` counts no entity that its scheme forbids (`seqeval` with mode="strict"). What `predict` shows and
`evaluate` calls `entity-f1` is lenient, the official score of CoNLL; `entity-f1-strict` stands beside it.
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
"""Anything from here to there, and what it is."""


@dataclass(frozen=True)
class EntityErrors:
    """Where the wrong predictions and the unfound entities come from; each is counted once.

    A wrong prediction and an unfound entity are paired, at most one to one: the same words with another type first,
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
    labels, counts = entity_counts(gold, predicted)
    all_texts = ClassCounts(*(each.sum(0) for each in (counts.right, counts.predicted, counts.gold)))
    return EntityScore(
        micro=average(all_texts, "micro"),
        macro=average(all_texts, "macro"),
        by_type={label: all_texts.of(index) for index, label in enumerate(labels)},
        errors=entity_errors(gold, predicted),
    )


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
    unfound, wrong = sorted(gold - predicted), sorted(predicted - gold)
    errors: Counter[str] = Counter()
    for kind in ("type", "boundary", "both"):
        for guess in tuple(wrong):
            # of several partners the one that shares most words, the earliest of equals
            partner = max(
                (entity for entity in unfound if _kind(entity, guess) == kind),
                key=lambda entity: _shared(entity, guess),
                default=None,
            )
            if partner is not None:
                unfound.remove(partner)
                wrong.remove(guess)
                errors[kind] += 1
    errors.update(missed=len(unfound), spurious=len(wrong))
    return errors


def _shared(a: tuple[int, int, str], b: tuple[int, int, str]) -> int:
    return min(a[1], b[1]) - max(a[0], b[0])


def _kind(a: tuple[int, int, str], b: tuple[int, int, str]) -> str | None:
    if a[:2] == b[:2]:
        return "type"
    if _shared(a, b) <= 0:
        return None
    return "boundary" if a[2] == b[2] else "both"
