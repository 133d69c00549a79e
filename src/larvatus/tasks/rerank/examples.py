"""Examples that teach a model to rerank: a query, a passage, and how relevant the passage is to it.

RelevanceExample("Where does a river end?", "A river ends in the sea.", 1.0, Place("train.tsv", 2))

The examples of one query are its candidates: they are held out together, and a listwise loss compares them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from larvatus.data.labelled.records import Dataset, LabelledExample, Place, Remark, shorten


@dataclass(frozen=True, slots=True)
class RelevanceExample(LabelledExample):
    """A pair of a query and a passage, which a model reads together."""

    labels_are: ClassVar = "texts"
    noun: ClassVar = "pairs"
    unit: ClassVar = "queries"
    checked: ClassVar = True

    query: str
    passage: str
    grade: float | None
    """How relevant the passage is: 0 is not at all; None if unknown."""
    place: Place
    id: str | None = None

    def reads(self) -> str:
        """The query, with the passage after a tab."""
        return f"{self.query}\t{self.passage}"

    def answer(self) -> object:
        return self.grade

    def key(self) -> Hashable:
        return self.query

    def contents(self) -> list[Any]:
        return [self.query, self.passage, self.grade]

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterator[Remark]:
        """Queries that define no order of passages."""
        for name, part in parts.items():
            lists = by_query(part)
            without = [rows[0] for rows in lists.values() if not any(row.grade for row in rows)]
            yield Remark(
                "queries without a relevant passage",
                f"{len(without):,} of {len(lists):,} queries of {name} have no relevant passage: nothing to rank first",
                [f"{row.place}: {shorten(row.query)}" for row in without],
            )
            single = [rows[0] for rows in lists.values() if len(rows) == 1]
            yield Remark(
                "queries with one passage",
                f"{len(single):,} of {len(lists):,} queries of {name} have one passage only: there is nothing to rank",
                [f"{row.place}: {shorten(row.query)}" for row in single],
            )


def by_query(examples: Iterable[RelevanceExample]) -> dict[str, list[RelevanceExample]]:
    """The candidates of each query, in their order."""
    lists: dict[str, list[RelevanceExample]] = {}
    for example in examples:
        lists.setdefault(example.query, []).append(example)
    return lists
