"""Predictions: small typed objects that print well and become dictionaries.

    found = model.predict("Mt. Sanitas is in Sunshine Canyon.")
    found.entities[0].text, found.entities[0].label, found.entities[0].start

`coverage` is how much of the text was read: its `tokens`, those that were `read`, and the number of `windows`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from larvatus.core import notebook
from larvatus.core.tables import Tabular, flatten
from larvatus.tasks.encoding.sequences import Sequences

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of a text the model has read."""

    tokens: int
    read: int
    windows: int

    @property
    def share(self) -> float:
        return self.read / self.tokens if self.tokens else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "tokens_read": self.read, "windows": self.windows}


def coverages(sequences: Sequences) -> list[Coverage]:
    """How much of each example the model reads."""
    columns = (sequences.tokens.tolist(), sequences.read.tolist(), sequences.parts.tolist())
    return [Coverage(tokens=tokens, read=read, windows=windows) for tokens, read, windows in zip(*columns, strict=True)]


class Piece(NamedTuple):
    """A part of a line for people, with its style: ``bold``, ``dim``, ``label:PER`` (the colour of a label)."""

    text: str
    style: str = ""


class Prediction(Protocol):
    """A prediction of any task."""

    @property
    def coverage(self) -> Coverage: ...

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Flat rows, for tables."""

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """A line for people with the `top` answers, labels padded to `width`."""


def best(probabilities: dict[str, float], top: int) -> list[tuple[str, float]]:
    """The most probable."""
    return sorted(probabilities.items(), key=lambda item: -item[1])[:top]


@dataclass(frozen=True, kw_only=True)
class Classified(Tabular):
    """A text or pair with its class, its labels or its number."""

    text: str
    pair: str | None = None
    label: str | None = None
    """The class; None for a model that gives several labels or a number."""
    labels: tuple[str, ...] = ()
    """The labels that hold, of a model that gives several."""
    value: float | None = None
    """The number, of a regression."""
    probabilities: dict[str, float]
    """Probability of every class or label; empty for a number."""
    coverage: Coverage

    @property
    def probability(self) -> float | None:
        """Probability of the class."""
        return self.probabilities[self.label] if self.label is not None else None

    def _repr_html_(self) -> str:
        title = self.text if self.pair is None else f"{self.text} ⟷ {self.pair}"
        rows = sorted(self.probabilities.items(), key=lambda item: -item[1])
        return notebook.bars(rows, title=title, note=str(self))

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {"text": self.text}
        if self.pair is not None:
            record["pair"] = self.pair
        if self.value is not None:
            record["value"] = self.value
        elif self.label is not None:
            record |= {"label": self.label, "probability": self.probability}
        else:
            record["labels"] = list(self.labels)
        if self.probabilities:
            record["probabilities"] = self.probabilities
        return {**record, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row; probabilities are columns, such as `probabilities.good`."""
        return [flatten(self.to_dict())]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        if top is not None and self.probabilities:
            answer = "  ".join(f"{label} {share:.3f}" for label, share in best(self.probabilities, top))
        elif self.label is not None:
            answer = f"{self.label:<{width}} {self.probability:.3f}"
        else:
            answer = str(self)
        yield Piece(answer, "bold")
        yield Piece("  ")
        yield Piece(self.text)
        if self.pair is not None:
            yield Piece(" ⟷ ", "dim")
            yield Piece(self.pair)

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:.3f}"
        if self.label is not None:
            return f"{self.label} {self.probability:.3f}"
        return ", ".join(f"{label} {self.probabilities[label]:.3f}" for label in self.labels) or "no label"


@dataclass(frozen=True, kw_only=True)
class TaggedWord:
    text: str
    tag: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    probability: float
    read: bool = True
    """Whether the model has seen the word: not so beyond the cut of a truncated text."""

    def __str__(self) -> str:
        return f"{self.text}/{self.tag}"


@dataclass(frozen=True, kw_only=True)
class Entity:
    text: str
    label: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    score: float
    """Probability; for a tagger, that of its least certain word."""

    def __str__(self) -> str:
        return f"{self.text} [{self.label}]"


@dataclass(frozen=True, kw_only=True)
class TextWithEntities(Tabular):
    text: str
    entities: tuple[Entity, ...]
    """The score of each is how sure its type is rather than none."""
    coverage: Coverage

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each entity, one without an entity for a text that has none."""
        names = ("label", "start", "end", "score")
        rows = [
            {"text": self.text, "entity": entity.text, **{name: getattr(entity, name) for name in names}}
            for entity in self.entities
        ]
        return rows or [{"text": self.text, "entity": None, **dict.fromkeys(names)}]


@dataclass(frozen=True, kw_only=True)
class Tagged(TextWithEntities):
    """A text with a tag for each of its words, and the entities that the tags spell."""

    words: tuple[TaggedWord, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(word.tag for word in self.words)

    def _repr_html_(self) -> str:
        entities = [(each.start, each.end, each.label) for each in self.entities]
        tags = [(word.start, word.end, word.tag) for word in self.words if word.tag != "O"]
        return notebook.marked(self.text, entities or tags)

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "words": [dataclasses.asdict(word) for word in self.words],
            "entities": [dataclasses.asdict(entity) for entity in self.entities],
            **self.coverage.to_dict(),
        }

    @property
    def of_words(self) -> bool:
        """Whether every word has a separate tag (parts of speech), and none are parts of entities."""
        return not self.entities and all(word.tag != "O" for word in self.words)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each entity, one without an entity for a text that has none; of parts of speech, for each word."""
        if not self.of_words or not self.words:
            return super().to_dicts()
        names = ("tag", "start", "end", "probability")
        return [
            {"text": self.text, "word": word.text, **{name: getattr(word, name) for name in names}}
            for word in self.words
        ]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """Entities in brackets, or word/TAG where every word has a separate tag (parts of speech)."""
        if self.of_words:
            for word in self.words:
                yield Piece(word.text)
                yield Piece(f"/{word.tag} ", f"dim label:{word.tag}")
            return
        at = 0
        for entity in self.entities:
            yield Piece(self.text[at : entity.start])
            yield Piece(f"[{entity.text} ", f"bold label:{entity.label}")
            yield Piece(f"{entity.label}]", f"label:{entity.label}")
            at = entity.end
        yield Piece(self.text[at:])

    def __str__(self) -> str:
        return " ".join(str(word) for word in self.words)


@dataclass(frozen=True, kw_only=True)
class AnswerSpan:
    """A span of the passage as an answer."""

    text: str
    start: int
    end: int
    """Characters [start, end) of the passage."""
    score: float
    """Its probability among all spans that may be answers."""

    def __str__(self) -> str:
        return f"{self.text} {self.score:.3f}"


@dataclass(frozen=True, kw_only=True)
class Answer(Tabular):
    """The answer to a question; `text` is empty and `start` None where the passage has none."""

    question: str
    text: str
    start: int | None
    end: int | None
    """Characters [start, end) of the passage."""
    score: float
    """The probability of what is answered, be it that there is no answer."""
    null_score: float | None
    """By how much the score of no answer exceeds that of the best span; None of a model that always answers."""
    others: tuple[AnswerSpan, ...]
    """The best spans, likeliest first: the answer's own too, unless there is none."""
    coverage: Coverage
    """Characters of the passage."""

    def _repr_html_(self) -> str:
        rows = [(each.text, f"{each.start}–{each.end}", f"{each.score:.3f}") for each in self.others]
        return notebook.table(("answer", "characters", "score"), rows, title=self.question, note=str(self))

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {name: getattr(self, name) for name in ("question", "text", "start", "end", "score")}
        if self.null_score is not None:
            record["null_score"] = self.null_score
        if len(self.others) > 1:
            record["others"] = [dataclasses.asdict(span) for span in self.others]
        return {**record, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row, of the answer; the text is empty where there is none."""
        return [{name: value for name, value in self.to_dict().items() if name != "others"}]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """The answer, or the `top` spans; then the question."""
        several = [*([] if self.text else [str(self)]), *map(str, self.others)]
        yield Piece("  ".join(several) if top is not None else str(self), "bold")
        yield Piece("  ")
        yield Piece(self.question)

    def __str__(self) -> str:
        return f"{self.text or 'no answer'} {self.score:.3f}"


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation of one entity of a text, the head, to another, the tail."""

    head: Entity
    tail: Entity
    label: str
    score: float
    """Probability of the label against none."""

    def __str__(self) -> str:
        return f"{self.head.text} –{self.label}→ {self.tail.text}"


@dataclass(frozen=True, kw_only=True)
class Spanned(TextWithEntities):
    """A text with its spans, which may nest; outer spans come before those inside them. Relations are in `to_dict`."""

    relations: tuple[Relation, ...] = ()
    """Between the entities, in their order; none of a model that does not look for them."""

    def inside(self, outer: Entity) -> tuple[Entity, ...]:
        """Entities within an entity."""
        return tuple(
            inner
            for inner in self.entities
            if inner is not outer and outer.start <= inner.start and inner.end <= outer.end
        )

    def _repr_html_(self) -> str:
        spans = [(each.start, each.end, each.label) for each in self.entities]
        return notebook.marked(self.text, spans, note=" · ".join(map(str, self.relations)))

    def to_dict(self) -> dict[str, Any]:
        """Head and tail of a relation are numbers of entities, as in labelled data."""
        record: dict[str, Any] = {
            "text": self.text,
            "entities": [dataclasses.asdict(entity) for entity in self.entities],
        }
        if self.relations:
            at = {entity: number for number, entity in enumerate(self.entities)}
            record["relations"] = [
                {"head": at[relation.head], "tail": at[relation.tail], "label": relation.label, "score": relation.score}
                for relation in self.relations
            ]
        return {**record, **self.coverage.to_dict()}

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """The text with its spans in brackets, inner ones within outer ones: ``[[United Airlines ORG] Holding ORG]``.

        Brackets of spans that cross would read as nested ones; they bear numbers: ``[₁the [₂river X]₁ bank Y]₂``.
        """
        order = sorted(self.entities, key=lambda entity: (entity.start, -entity.end))
        numbers = {id(entity): number for number, entity in enumerate(_crossing(order), start=1)}
        marks: dict[int, list[tuple[str, Entity]]] = {}
        for entity in reversed(order):  # what opens last closes first
            marks.setdefault(entity.end, []).append(("]", entity))
        for entity in order:
            marks.setdefault(entity.start, []).append(("[", entity))
        at = 0
        for place in sorted(marks):
            yield Piece(self.text[at:place])
            for bracket, entity in marks[place]:
                number = str(numbers.get(id(entity), "")).translate(SUBSCRIPTS)
                said = f"[{number}" if bracket == "[" else f" {entity.label}]{number}"
                yield Piece(said, f"bold label:{entity.label}")
            at = place
        yield Piece(self.text[at:])
        for relation in self.relations:
            yield Piece(f"  {relation}", "italic")

    def __str__(self) -> str:
        spans = ", ".join(str(entity) for entity in self.entities) or "no spans"
        return "; ".join([spans, *map(str, self.relations)])


def _crossing(order: Sequence[Entity]) -> list[Entity]:
    """Entities that cross another; `order` is by start, longer ones first."""
    crossing: dict[int, Entity] = {}
    for number, entity in enumerate(order):
        for other in order[number + 1 :]:
            if other.start >= entity.end:
                break
            if entity.start < other.start and entity.end < other.end:
                crossing |= {id(entity): entity, id(other): other}
    return [entity for entity in order if id(entity) in crossing]
