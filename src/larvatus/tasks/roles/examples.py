"""Sentences with their predicates and arguments, and what makes them unusable.

    sentence = FramedSentence(("Ann", "ran"), (Frame(1, "run.02", (RoleSpan("ARG0", 0, 0),)),), Place("train.jsonl", 1))

Words are counted from 0, and the last word of an argument is in it. A role that begins with C- continues the argument
before it, one with R- refers to it (CoNLL-2005). V is the role of the predicate's own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, Place, Remark, WordsExample, first_names

VERB = "V"
CONTINUED = "C-"


class RoleSpan(NamedTuple):
    """An argument of a predicate."""

    role: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, order=True)
class Frame:
    """A predicate, its sense, and its arguments in the order of their words."""

    predicate: int
    roleset: str
    """Lemma and sense: ``get.01``. In data without senses the lemma alone."""
    arguments: tuple[RoleSpan, ...]


@dataclass(frozen=True, slots=True)
class FramedSentence(WordsExample):
    """The words of a sentence and its predicates with their arguments."""

    labels_are: ClassVar = "spans"
    stratified: ClassVar = "role"
    noun: ClassVar = "sentences"

    words: tuple[str, ...]
    frames: tuple[Frame, ...] | None
    """In the order of their predicates; None where nobody knows."""
    place: Place
    text: str | None = None
    """The text as it was written; None: words with single spaces between them."""
    places: tuple[tuple[int, int], ...] | None = None
    """Characters of each word in `text`, start and end; None where `text` is."""
    id: str | None = None

    def __post_init__(self) -> None:
        if (fault := sentence_fault(self.words, self.frames or ())) is not None:
            raise DataError(f"{self.place}: {fault[1]}")

    @property
    def word_places(self) -> tuple[tuple[int, int], ...] | None:
        return self.places

    def names(self) -> Iterable[str]:
        return [argument.role for frame in self.frames or () for argument in frame.arguments]

    def answer(self) -> object:
        return self.frames

    def answer_shown(self) -> str:
        return first_names([frame.roleset for frame in self.frames or ()]) or "no predicate"

    def contents(self) -> list[Any]:
        return [
            self.words,
            None if self.frames is None else [(f.predicate, f.roleset, f.arguments) for f in self.frames],
        ]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterable[Remark]:
        """Rolesets that training lacks, arguments without their predicate's words, continuations of nothing."""
        known = {frame.roleset for example in parts["train"] for frame in example.frames or ()}
        for name, part in parts.items():
            frames = [(example, frame) for example in part for frame in example.frames or ()]
            if name != "train":
                unseen = [(example, frame) for example, frame in frames if frame.roleset not in known]
                yield Remark(
                    "rolesets unseen in train",
                    f"{len(unseen):,} of {len(frames):,} predicates of {name} have a roleset that train lacks",
                    [f"{example.place}: {frame.roleset}" for example, frame in unseen],
                )
            loose = [(example, frame, role) for example, frame in frames for role in _orphans(frame)]
            yield Remark(
                "continuations of nothing",
                f"{len(loose):,} arguments of {name} continue one that is not there; scores count them as that one",
                [f"{example.place}: {role} of {frame.roleset}" for example, frame, role in loose],
            )


def _orphans(frame: Frame) -> list[str]:
    seen: set[str] = set()
    orphans = []
    for argument in frame.arguments:
        if argument.role.startswith(CONTINUED) and argument.role.removeprefix(CONTINUED) not in seen:
            orphans.append(argument.role)
        seen.add(argument.role)
    return orphans


def sentence_fault(words: Sequence[str], frames: Iterable[Frame]) -> tuple[str, str] | None:
    """The first fault that makes a sentence unusable, its kind and a message; None without one."""
    if not words:
        return "empty sentence", "the sentence has no words; drop it"
    if not all(word.strip() for word in words):
        return "empty word", "a word is empty; fill it in"
    frames = list(frames)
    for frame in frames:
        if (fault := _frame_fault(words, frame)) is not None:
            return fault
    twice = [number for number, count in Counter(frame.predicate for frame in frames).items() if count > 1]
    if twice:
        said = f"word {twice[0]} ({words[twice[0]]!r}) is a predicate twice; give it one frame"
        return "predicate twice", said
    return None


def _frame_fault(words: Sequence[str], frame: Frame) -> tuple[str, str] | None:
    size = f"the sentence has words 0 to {len(words) - 1:,}"
    if not 0 <= frame.predicate < len(words):
        return "predicate out of range", f"the predicate {frame.roleset} is word {frame.predicate}, but {size}"
    for role, first, last in frame.arguments:
        if not 0 <= first <= last < len(words):
            return "argument out of range", f"{role} of {frame.roleset} is words {first} to {last}, but {size}"
    order = sorted(frame.arguments, key=lambda argument: (argument.first, argument.last))
    for before, after in pairwise(order):
        if after.first <= before.last:
            said = (
                f"{before.role} (words {before.first} to {before.last}) and {after.role} (words {after.first} to "
                f"{after.last}) of {frame.roleset} overlap; arguments of one predicate share no word"
            )
            return "arguments overlap", said
    return None


def in_order(arguments: Iterable[RoleSpan]) -> tuple[RoleSpan, ...]:
    """Arguments by their words."""
    return tuple(sorted(arguments, key=lambda argument: (argument.first, argument.last, argument.role)))
