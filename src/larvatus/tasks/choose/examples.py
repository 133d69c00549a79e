"""A context with several endings, one of which is right: what multiple choice learns from.

ChoiceExample("He opened the door.", ("He flew away.", "He went in."), 1, Place("train.jsonl", 1))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Remark, shorten

SKEWED = 2.0
"""How many times its even share a place must be right before it is said."""
FEWEST = 20
"""Examples below which shares of places say nothing."""


@dataclass(frozen=True, slots=True)
class ChoiceExample(LabelledExample):
    """A context and its endings, as a model reads them: each beside the context."""

    labels_are: ClassVar = "choices"
    stratified: ClassVar = "the place of the right ending"
    unit: ClassVar = "contexts"
    checked: ClassVar = True

    context: str
    endings: tuple[str, ...]
    label: int | None
    """The right one, from 0; None where nobody says."""
    place: Place
    id: str | None = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The context with each ending."""
        return [(self.context, ending) for ending in self.endings]

    def reads(self) -> str:
        """The context, then each ending after a tab."""
        return "\t".join((self.context, *self.endings))

    def answer(self) -> object:
        return self.label

    def answer_shown(self) -> str:
        return "nothing" if self.label is None else shorten(self.endings[self.label])

    def key(self) -> Hashable:
        return self.context

    def strata(self) -> set[str]:
        return set() if self.label is None else {str(self.label)}

    def contents(self) -> list[Any]:
        return [self.context, list(self.endings), self.label]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterator[Remark]:
        """Places that are right too often, contexts of train in dev, numbers of endings that train lacks."""
        for name, part in parts.items():
            yield from _skewed(name, part)
        first = {example.context: example for example in parts["train"]}
        dev = parts.get("dev", ())
        leaks = [example for example in dev if example.context in first]
        yield Remark(
            "train contexts in dev",
            f"{len(leaks):,} examples of dev have a context of train: scores will flatter",
            [f"{leak.place}: {shorten(leak.context)} (first at {first[leak.context].place})" for leak in leaks],
        )
        sizes = {len(example.endings) for example in parts["train"]}
        unseen = [example for example in dev if len(example.endings) not in sizes]
        yield Remark(
            "numbers of endings unseen in train",
            f"{len(unseen):,} examples of dev have a number of endings that train lacks",
            [f"{example.place}: {len(example.endings)} endings" for example in unseen],
        )


def _skewed(name: str, part: Dataset[ChoiceExample]) -> Iterator[Remark]:
    """Scores do not depend on places, but whoever scores all alike answers the first, and people learn places."""
    known = [(example, example.label) for example in part if example.label is not None]
    if len(known) < FEWEST:
        return
    for place in sorted({label for _, label in known}):
        right = [example for example, label in known if label == place]
        even = sum(1 / len(example.endings) for example, _ in known if place < len(example.endings))
        if len(right) > SKEWED * even:
            shares = f"{len(right) / len(known):.0%} of {name}, by chance in {even / len(known):.0%}"
            yield Remark(
                "places of right endings unbalanced",
                f"ending {place} is right in {shares}: a model that scores all alike would look good; shuffle them",
                [f"{example.place}: {shorten(example.endings[place])}" for example in right],
            )
