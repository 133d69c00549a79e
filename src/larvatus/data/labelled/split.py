"""Hold out a part of the training examples, where no others are given to choose and to calibrate by.

    parts = hold_out(data)
    parts.train, parts.held_out, parts.said        # "80 of 800 examples are held out at random, stratified by label"

What belongs together stays together: the questions of one passage, the pairs of one premise, the sentences of one
document where a file says where documents begin, texts that are the same, and the examples of one group where the data
have groups (`split.py`). Such units are sampled, rarest labels first, so that each label,
tag or type has its share of both parts (iterative stratification, Sechidis et al. 2011); numbers are stratified by
tenths of their range. One that few examples have stays in training: a third of them is held out at most.

Groups of examples that stay together: authors, documents, patients, named by a column of the data.

    data = with_groups(read_texts("train.csv"), ["train.csv"], "author")
    data.groups[data.examples[0].place]           # "jane"

Where some examples are held out, those of one group are all held out or all trained on (`split.py`). Of SQuAD's JSON
the group may be `title`, the article of a passage.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple

from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Example, Place, QuestionPlace
from larvatus.data.labelled.tables import ENDINGS, TableOptions, ending, named_column, open_table

SHARE = 0.1
MOST = 2_000
"""Largest number of held-out examples."""
FEWEST_DOCUMENTS = 10
"""Below which sentences are held out one by one: a tenth of fewer documents is none."""
BINS = 10
"""Number of equally large bins of a numeric target."""


class HeldOutSplit(NamedTuple, Generic[Example]):
    train: Dataset[Example]
    held_out: Dataset[Example]
    said: str
    """How many were held out and how, in words for people."""


def hold_out(data: Dataset[Example], *, share: float = SHARE, most: int = MOST) -> HeldOutSplit[Example]:
    """A share of the examples, up to a limit; always the same ones of the same data."""
    wanted = min(most, round(share * len(data)))
    owners, strata, word = units_of(data), strata_of(data), unit_word(data)
    chosen = sample_units(owners, strata, wanted) if wanted else set()
    more = ""
    if not chosen and not word and wanted:  # a few texts, each many times: only those cannot be kept apart
        owners, more = list(range(len(data))), "; the same texts are on both sides"
        chosen = sample_units(owners, strata, wanted)
    if not chosen:
        few = f"{max(owners, default=-1) + 1:,} {word or 'examples'}"
        raise DataError(f"{data.source}: {few} are too few to hold some out; give --dev, or --no-dev")
    kept: list[Example] = []
    others: list[Example] = []
    for example, owner in zip(data.examples, owners, strict=True):
        (others if owner in chosen else kept).append(example)
    said = _said(data, len(others)) + more
    return HeldOutSplit(
        dataclasses.replace(data, examples=tuple(kept)),
        dataclasses.replace(data, examples=tuple(others), notes=(said,)),
        said,
    )


def unit_word(data: Dataset[Any]) -> str:
    """Readable name of the unit held out whole: groups, passages; empty for identical texts."""
    if data.groups:
        return "groups"
    if has_documents(data):
        return "documents"
    unit: str = data.examples[0].unit
    return unit


def _said(data: Dataset[Any], count: int) -> str:
    first = data.examples[0]
    said = f"{count:,} of {len(data):,} {first.noun} are held out at random"
    by = "their number" if data.kind == "regression" else first.stratified
    said += f", stratified by {by}" if by else ""
    return f"{said}, whole {word} at a time" if (word := unit_word(data)) else said


def units_of(data: Dataset[Any]) -> list[int]:
    """For each example, the number of its unit: its group, its passage, or its duplicates."""
    numbers: dict[Hashable, int] = {}
    documents = has_documents(data)
    keys = (_document(example) if documents else _key(example, data) for example in data.examples)
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def has_documents(data: Dataset[Any]) -> bool:
    """Whether there are enough documents to hold out whole ones."""
    documents = {_document(example) for example in data.examples}
    told = all(example.place.document is not None for example in data.examples)
    return told and not data.groups and len(documents) >= FEWEST_DOCUMENTS


def _document(example: Any) -> Hashable:
    return example.place.source, example.place.document


def _key(example: Any, data: Dataset[Any]) -> Hashable:
    if data.groups:
        group: Hashable = data.groups.get(example.place, example.place)  # one without a group is one by itself
        return group
    key: Hashable = example.key()
    return key


def strata_of(data: Dataset[Any]) -> list[frozenset[str]]:
    """What each example is to be stratified by; never nothing."""
    if data.kind == "regression":
        numbers = sorted(float(example.label or 0.0) for example in data.examples)
        borders = [numbers[len(numbers) * n // BINS] for n in range(1, BINS)]
        return [frozenset([f"tenth {bisect_right(borders, float(example.label or 0.0))}"]) for example in data.examples]
    return [frozenset(example.strata()) or frozenset(["(none)"]) for example in data.examples]


def sample_units(owners: Sequence[int], strata: Sequence[frozenset[str]], wanted: int) -> set[int]:
    """Units with about `wanted` examples, sampled at random; empty where none can be spared."""
    draw = _Draw.of(owners, strata, wanted)
    order = stream(0, "finetune held out").permutation(len(draw.sizes)).tolist()
    by_label: dict[str, list[int]] = {}
    for unit in order:
        for label in draw.labels[unit]:
            by_label.setdefault(label, []).append(unit)
    third = {label: count // 3 for label, count in draw.counts.items()}
    half = {label: count // 2 for label, count in draw.counts.items()}
    floor = {label: min(third[label], math.floor(share)) for label, share in draw.shares.items()}
    ceiling = {label: min(third[label], math.ceil(share)) for label, share in draw.shares.items()}
    for label in sorted(draw.counts, key=lambda name: (draw.counts[name], name)):
        draw.take(by_label[label], floor)
    for most in (ceiling, third, half):
        draw.take(order, most)
    if not draw.chosen:  # all are larger than what is wanted: the smallest, if one can be spared
        draw.take(sorted(order, key=draw.sizes.__getitem__), half, larger=True)
    return draw.chosen


class _Draw(NamedTuple):
    """What changes while units are sampled."""

    sizes: list[int]
    labels: list[Counter[str]]
    """For each unit, the number of examples with each label."""
    counts: Counter[str]
    """Count over all examples."""
    shares: dict[str, float]
    """How many of them are to be held out, of each label."""
    wanted: int
    chosen: set[int]
    held: Counter[str]

    @classmethod
    def of(cls, owners: Sequence[int], strata: Sequence[frozenset[str]], wanted: int) -> _Draw:
        labels: list[Counter[str]] = [Counter() for _ in range(max(owners, default=-1) + 1)]
        for owner, stratum in zip(owners, strata, strict=True):
            labels[owner].update(stratum)
        counts = Counter(name for stratum in strata for name in stratum)
        shares = {name: wanted * count / len(owners) for name, count in counts.items()}
        sizes = Counter(owners)
        return cls([sizes[unit] for unit in range(len(labels))], labels, counts, shares, wanted, set(), Counter())

    def take(self, units: Sequence[int], most: dict[str, int], *, larger: bool = False) -> None:
        """Hold out units in their order, as long as no label goes beyond `most` and the whole not beyond `wanted`.

        A unit that goes beyond it is taken where that comes closer, or where `larger` ones are taken too.
        """
        total = sum(self.sizes[unit] for unit in self.chosen)
        for unit in units:
            if total >= self.wanted:
                return
            misses = not larger and total + self.sizes[unit] - self.wanted >= self.wanted - total
            fits = all(self.held[name] + count <= most[name] for name, count in self.labels[unit].items())
            if misses or not fits or unit in self.chosen:
                continue
            self.chosen.add(unit)
            self.held.update(self.labels[unit])
            total += self.sizes[unit]


def with_groups(
    data: Dataset[Example], paths: Sequence[str], column: str, options: TableOptions = TableOptions()
) -> Dataset[Example]:
    """The same examples with the groups that a column of their files names."""
    if any(isinstance(example.place, QuestionPlace) for example in data.examples):
        return _by_title(data, column)
    groups: dict[Place, str] = {}
    for path in paths:
        if path == "-":
            raise UsageError("--group reads its column from files; give a file in place of standard input")
        if ending(path) not in ENDINGS:
            raise UsageError(f"--group {column}: {path} has no columns by name; give CSV, TSV, JSONL or Parquet")
        table = open_table(path, options, Problems())  # what cannot be read was said or refused before
        name = named_column(table, column, "group")
        for place, row in table.rows:
            if (value := row.get(name)) is not None and value != "":
                groups[place] = str(value)
    _refuse_one(data, groups, column)
    return dataclasses.replace(data, groups=groups)


def _by_title(data: Dataset[Example], column: str) -> Dataset[Example]:
    if column != "title":
        raise UsageError(f"--group {column}: questions of SQuAD's JSON have a title, and no other groups; give title")
    titles = {example.place: getattr(example, "title", None) for example in data.examples}
    groups = {place: str(title) for place, title in titles.items() if title}
    _refuse_one(data, groups, column)
    return dataclasses.replace(data, groups=groups)


def _refuse_one(data: Dataset[Example], groups: dict[Place, str], column: str) -> None:
    known = {groups.get(example.place) for example in data.examples}
    if known == {None}:
        raise DataError(f"{data.source}: {column} is empty in every row; name another column with --group")
    if len(known) == 1:
        raise DataError(f"{data.source}: all examples are of the group {known.pop()!r}; give --dev in place of --group")
