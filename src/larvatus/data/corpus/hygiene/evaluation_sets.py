"""The texts of evaluation sets, as n-grams: what a corpus must not hold.

    sets = EvaluationSets.read(["test.jsonl", "squad.json"], n=13)
    sets.grams                                # all n-grams, sorted, each once
    sets.sets[0].hits(is_hit)                 # of each example, how many of its n-grams the corpus holds

A row of a table is an example, and so is a line of plain text, and a paragraph of SQuAD's JSON. All strings of a row
count; an example none of which has n words is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Bits, Bools, Ints
from larvatus.core.errors import DataError
from larvatus.data.corpus.hygiene.shingles import ShingleCharacters, count_per_document, hashed_words, n_grams
from larvatus.data.labelled.tables import ENDINGS, ending, open_table
from larvatus.data.text.streams import numbered_lines

_AT_ONCE = 1_024  # texts


@dataclass(frozen=True)
class EvaluationSet:
    """E examples, each of one text or several: T texts in all."""

    name: str
    texts: tuple[str, ...]
    """[E] The beginning of each example, to be shown."""
    grams: Bits
    """n-grams of all texts, end to end."""
    counts_of_texts: Ints
    """[T]"""
    owners: Ints
    """[T] The example of each text."""

    @classmethod
    def read(cls, path: str, *, n: int) -> EvaluationSet:
        """A set in which nothing has n words cannot be judged, and is refused."""
        grams: list[Bits] = []
        counts: list[Ints] = []
        owners: list[int] = []
        beginnings: list[str] = []
        waiting: list[str] = []

        def take() -> None:
            of_texts, count = n_grams(hashed_words(ShingleCharacters.of(waiting)), n)
            grams.append(of_texts)
            counts.append(count)
            waiting.clear()

        for number, texts in enumerate(example_texts(path)):
            waiting += texts
            owners += [number] * len(texts)
            beginnings.append(max(texts, key=len)[:160])
            if len(waiting) >= _AT_ONCE:
                take()
        take()
        if not beginnings:
            raise DataError(f"{path} holds no examples; give the evaluation set as a table, JSON or lines of text")
        if not sum(map(len, grams)):
            raise DataError(
                f"{path}: no text of it has {n} words; give the file with its texts, or ask for fewer words"
            )
        return cls(path, tuple(beginnings), np.concatenate(grams), np.concatenate(counts), np.array(owners, np.int64))

    @property
    def examples(self) -> int:
        return len(self.texts)

    @property
    def counts(self) -> Ints:
        """[E] n-grams of each example."""
        return self.of_examples(self.counts_of_texts)

    def hits(self, is_hit: Bools) -> Ints:
        """[E] How many n-grams of each example were hit."""
        return self.of_examples(count_per_document(is_hit, self.counts_of_texts))

    def of_examples(self, of_texts: Ints) -> Ints:
        """[T] → [E], added."""
        return np.bincount(self.owners, weights=of_texts, minlength=self.examples).astype(np.int64)


@dataclass(frozen=True)
class EvaluationSets:
    sets: tuple[EvaluationSet, ...]
    grams: Bits
    """n-grams of all sets, sorted, each once."""

    @classmethod
    def read(cls, paths: Sequence[str], *, n: int) -> EvaluationSets:
        sets = tuple(EvaluationSet.read(path, n=n) for path in paths)
        grams = np.unique(np.concatenate([each.grams for each in sets])) if sets else np.empty(0, np.uint64)
        return cls(sets, grams)

    def places(self, grams: Bits) -> Ints:
        """[G] n-grams of a corpus → the place of each in `grams`, −1 if it is absent."""
        if not len(self.grams):
            return np.full(len(grams), -1, np.int64)
        at = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
        return np.where(self.grams[at] == grams, at, -1)


def example_texts(path: str) -> Iterator[list[str]]:
    """The strings of each example."""
    if ending(path) not in ENDINGS:
        for _, line in numbered_lines(path):
            if line.strip():
                yield [line]
        return
    for _, row in open_table(path).rows:
        for record in _spread(dict(row)):
            if texts := list(_strings(record)):
                yield texts


def _spread(record: Any) -> Iterator[Any]:
    """SQuAD's JSON is one record with a list of articles, each with a list of paragraphs."""
    for key in ("data", "paragraphs"):
        inner = record.get(key) if isinstance(record, dict) else None
        if isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner):
            for each in inner:
                yield from _spread(each)
            return
    yield record


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
