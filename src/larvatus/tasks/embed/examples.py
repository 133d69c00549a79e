"""Examples that teach a model to embed: texts that belong together, or that are similar to some degree.

| rows | an example | texts |
| --- | --- | --- |
| pairs | a text and one that belongs to it (question and answer, title and text) | anchor, positive |
| triplets | the same, with texts that do not belong to it | anchor, positive, negative … |
| scores | two texts and how similar they are | first, second |
| groups | a text and the name of its group (captions of one picture) | text |
| texts | a text | text |

SentenceExample(("What is a bank?", "The edge of a river."), rows="pairs", place=Place("faq.tsv", 2))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Remark, shorten

Rows = Literal["pairs", "triplets", "scores", "groups", "texts"]
"""What a row of a file is."""
ROWS: tuple[Rows, ...] = ("pairs", "triplets", "scores", "groups", "texts")


@dataclass(frozen=True, slots=True)
class SentenceExample(LabelledExample):
    """Texts whose vectors are compared with each other, or with those of other examples."""

    labels_are: ClassVar = "texts"
    checked: ClassVar = True

    texts: tuple[str, ...]
    rows: Rows
    place: Place
    score: float | None = None
    """How similar two texts are."""
    group: str | None = None
    """The group of a text."""
    id: str | None = None

    def reads(self) -> str:
        """Its texts, with tabs between them."""
        return "\t".join(self.texts)

    def answer(self) -> object:
        return self.score if self.score is not None else self.group

    def key(self) -> Hashable:
        """The group, or the first text: the pairs of one question are held out together."""
        return self.group if self.group is not None else self.texts[0]

    def contents(self) -> list[Any]:
        return [self.rows, list(self.texts), self.score, self.group]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterator[Remark]:
        """Pairs of equal texts: they teach nothing."""
        for name, part in parts.items():
            equal = [example for example in part if len(example.texts) > 1 and len(set(example.texts[:2])) == 1]
            yield Remark(
                "pairs of equal texts",
                f"{len(equal):,} pairs of {name} are the same text twice: there is nothing to learn from them",
                [f"{example.place}: {shorten(example.texts[0])}" for example in equal],
            )


def rows_of(data: Dataset[SentenceExample]) -> Rows:
    """What the rows of a data set are."""
    return data.examples[0].rows
