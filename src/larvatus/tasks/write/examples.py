"""A text, and what is to be written for it: what text to text learns from.

WritingExample("The house is small.", None, ("Das Haus ist klein.",), Place("train.tsv", 1))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from larvatus.data.labelled.records import LabelledExample, Place, shorten


@dataclass(frozen=True, slots=True)
class WritingExample(LabelledExample):
    """A text or a pair with what is to be written for it."""

    labels_are: ClassVar = "texts"
    checked: ClassVar = True

    text: str
    pair: str | None
    targets: tuple[str, ...]
    """What may be written; the first is learnt, all are right. Nothing where nobody says."""
    place: Place
    id: str | None = None
    parts: tuple[str, str] | None = None
    """What the two texts are called, where the file names its columns."""
    few: bool = False
    """Whether its target is one of a few, which are then classes."""

    def names(self) -> Iterable[str]:
        return self.targets[:1] if self.few else ()

    def reads(self) -> str:
        """The text, with its pair after a tab."""
        return self.text if self.pair is None else f"{self.text}\t{self.pair}"

    def answer(self) -> object:
        return self.targets or None

    def answer_shown(self) -> str:
        return shorten(" / ".join(self.targets)) if self.targets else "nothing"

    def contents(self) -> list[Any]:
        return [self.text, self.pair, list(self.targets)]
