"""Targets of fine-tuning, in NumPy or torch. Those of pretraining are in `core/pretraining_targets.py`.

ClassTargets    the label of a text                AnswerSpans    the span of an answer in a passage
WordTags        a tag for each word                WordSpans      spans of words, also nested, and their relations
ChoiceTargets   the correct ending of an example   SentenceTargets  texts whose vectors are compared
RelevanceTargets  how relevant passages are to their query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self

import numpy as np

from larvatus.core.arrays import Ints, TargetRecord
from larvatus.core.batch import A, edges


@dataclass(frozen=True, eq=False)
class ClassTargets(TargetRecord, Generic[A]):
    """What each text is: a class, a row of yes or no for each class, or a number. A long text is several sequences."""

    what: ClassVar[str] = "labels of texts"
    labels: A  # [B] classes, [B] numbers or [B, K] yes and no
    weights: A  # [B] how much a sequence counts: 1 / windows of its text, so that every text counts once


@dataclass(frozen=True, eq=False)
class WordTags(TargetRecord, Generic[A]):
    """The tag of each word; the batch's tokens tell which tokens a word is made of (`batch.WordTokens`)."""

    what: ClassVar[str] = "tags of words"
    tags: A  # [W] −100 where nobody knows
    counts: A  # [B] words of each sequence

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> WordTags[A]:
        border = edges(self.counts)  # type: ignore[arg-type]
        first, last = int(border[sequences[0]]), int(border[sequences[1]])
        return WordTags(tags=self.tags[first:last], counts=self.counts[slice(*sequences)])  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class AnswerSpans(TargetRecord, Generic[A]):
    """Where the answer is in each sequence: its first and last token, counted from the sequence's own first.

    A sequence that does not hold the answer (another window of the passage does, or there is none) points at [CLS], 0.
    """

    what: ClassVar[str] = "answers in passages"
    starts: A  # [B] −100 where nobody knows
    ends: A  # [B]
    weights: A  # [B] how much a sequence counts
    lengths: A  # [B] tokens of each sequence: the softmax runs over them


@dataclass(frozen=True, eq=False)
class WordSpans(TargetRecord, Generic[A]):
    """The spans of words that are something; the words themselves are in the batch's tokens (`batch.WordTokens`).

    Of a long text each window begins the spans of only some words, and contains the words after these that they may end
    at: so every span is in one window.
    """

    what: ClassVar[str] = "spans of words"
    counts: A  # [B] words of each sequence
    first: A  # [G] first word of each gold span, 0 … W − 1
    last: A  # [G] its last word, itself in it
    types: A  # [G]
    golds: A  # [B] gold spans of each sequence
    related: A = field(default_factory=lambda: np.empty((0, 3), np.int64))  # type: ignore[assignment]
    # [R, 3] relations of two gold spans of a sequence: head, tail (0 … G − 1) and label; heads ascending

    @property
    def count(self) -> int:
        return len(self.types)  # type: ignore[arg-type]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> WordSpans[A]:
        border, gold = edges(self.counts), edges(self.golds)  # type: ignore[arg-type]
        begin = int(border[sequences[0]])
        place = slice(int(gold[sequences[0]]), int(gold[sequences[1]]))
        links = slice(*np.searchsorted(self.related[:, 0], [place.start, place.stop]))  # type: ignore[index]
        return WordSpans(
            counts=self.counts[slice(*sequences)],  # type: ignore[index]
            first=self.first[place] - begin,  # type: ignore[index]
            last=self.last[place] - begin,  # type: ignore[index]
            types=self.types[place],  # type: ignore[index]
            golds=self.golds[slice(*sequences)],  # type: ignore[index]
            related=self.related[links] - np.array([place.start, place.start, 0]),  # type: ignore[index]
        )

    @classmethod
    def join(cls, parts: Sequence[tuple[WordSpans[Ints], int, int]]) -> WordSpans[Ints]:
        before = edges(np.array([int(part.counts.sum()) for part, _, _ in parts])).tolist()
        spans = edges(np.array([part.count for part, _, _ in parts])).tolist()

        def end_to_end(name: str, *, moved: bool = False) -> Ints:
            arrays = [getattr(part, name) + (n if moved else 0) for (part, _, _), n in zip(parts, before, strict=False)]
            return np.concatenate(arrays)

        return WordSpans(
            counts=end_to_end("counts"),
            first=end_to_end("first", moved=True),
            last=end_to_end("last", moved=True),
            types=end_to_end("types"),
            golds=end_to_end("golds"),
            related=np.concatenate(
                [part.related + np.array([n, n, 0]) for (part, _, _), n in zip(parts, spans, strict=False)]
            ),
        )


class GroupedTargets(TargetRecord):
    """E examples of P units in all, such as endings; a unit is one sequence, or several where it is long."""

    sizes: ClassVar[str]
    """Field with the number of units of each example, [E]."""
    rows: ClassVar[dict[str, Literal["sequences", "units", "examples"]]]
    """What the rows of the other fields are."""
    windows: Any  # [P] sequences of each unit

    @property
    def count(self) -> int:
        return len(getattr(self, self.sizes))

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> Self:
        units = np.searchsorted(edges(self.windows), sequences).tolist()
        examples = np.searchsorted(edges(getattr(self, self.sizes)), units).tolist()
        taken = {"sequences": slice(*sequences), "units": slice(*units), "examples": slice(*examples)}
        rows = {"windows": "units", self.sizes: "examples", **self.rows}
        return type(self)(**{name: getattr(self, name)[taken[kind]] for name, kind in rows.items()})


@dataclass(frozen=True, eq=False)
class ChoiceTargets(GroupedTargets, Generic[A]):
    """E examples of P endings in all; an ending is one sequence, or several where it is long with its context."""

    what: ClassVar[str] = "right endings"
    sizes = "endings"
    rows: ClassVar = {"labels": "examples"}
    windows: A  # [P] sequences of each ending
    endings: A  # [E] endings of each example
    labels: A  # [E] the right one, from 0; −100 where nobody knows


@dataclass(frozen=True, eq=False)
class SentenceTargets(GroupedTargets, Generic[A]):
    """E examples of T texts in all, whose vectors are compared; a text is one sequence, or several where it is long.

    The texts of an example follow each other: an anchor, its positive, hard negatives; or two texts with a score; or
    one text.
    """

    what: ClassVar[str] = "texts whose vectors are compared"
    sizes = "texts"
    rows: ClassVar = {"kept": "sequences", "scores": "examples", "teacher": "units"}
    windows: A  # [T] sequences of each text
    kept: A  # [B, 2] the tokens of each sequence that its text is pooled from: the first, and the one after the last
    texts: A  # [E] texts of each example
    scores: A  # [E] how similar the two texts of an example are; 0 if it is unknown
    teacher: A  # [T, K] vectors of a teacher; K = 0 without one


@dataclass(frozen=True, eq=False)
class RelevanceTargets(GroupedTargets, Generic[A]):
    """E lists of P passages in all, each read with its query; a pair is one sequence, or several where it is long.

    A list is a query with its candidates, or a single pair where the loss compares no passages with each other.
    """

    what: ClassVar[str] = "relevance of passages"
    sizes = "candidates"
    rows: ClassVar = {"grades": "units"}
    windows: A  # [P] sequences of each pair
    candidates: A  # [E] pairs of each list
    grades: A  # [P] how relevant the passage is
