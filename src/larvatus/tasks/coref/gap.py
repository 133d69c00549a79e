"""GAP (Webster et al. 2018): does an ambiguous pronoun refer to one of two names? F1 by gender, and their ratio.

    data = read_gap(["gap-validation.tsv"])
    gap_metrics(data.examples, [corefers(example, mentions) for example, mentions in …])

A name counts as coreferent when a mention in the cluster of the pronoun, which is the mention with exactly its
characters, overlaps the name and is not the pronoun itself; mentions that are pronouns hold no name. As in the official
scorer, the two names of an example are two decisions, F1 is over those that are TRUE, and the bias is feminine F1 /
masculine F1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Dataset, LabelledExample, Place, TextExample, source_name
from larvatus.data.text.streams import numbered_lines
from larvatus.metrics.classification import divide
from larvatus.tasks.evaluation.resampling import ResampledMetric

HEADER = ("ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset", "B-coref")
FEMININE, MASCULINE = frozenset({"she", "her", "hers"}), frozenset({"he", "his", "him"})
Characters = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GapExample(LabelledExample):
    """A text with a pronoun and two names, and whether each name is what the pronoun refers to."""

    labels_are: ClassVar = "choices"
    noun: ClassVar = "pronouns"

    text: str
    pronoun: Characters
    names_in_text: tuple[Characters, Characters]
    coreferent: tuple[bool, bool]
    place: Place
    id: str | None = None

    @property
    def feminine(self) -> bool:
        return self.text[slice(*self.pronoun)].lower() in FEMININE

    def reads(self) -> str:
        return self.text

    def plain_text(self) -> TextExample:
        return TextExample(self.text, None, None, self.place, self.id)

    def answer(self) -> object:
        return self.coreferent

    def contents(self) -> list[Any]:
        return [self.text, self.pronoun, self.names_in_text, self.coreferent]


def is_gap(name: str) -> bool:
    """Whether the first line of a file is GAP's header."""
    if name == "-" or ".tsv" not in name:
        return False
    _, head = next(iter(numbered_lines(name)), (0, ""))
    return tuple(head.split("\t")[: len(HEADER)]) == HEADER


def read_gap(names: Sequence[str], problems: Problems | None = None) -> Dataset[GapExample]:
    """The pronouns of GAP's files."""
    examples = []
    for name in names:
        lines = numbered_lines(name)
        next(lines, None)
        for number, line in lines:
            if line.strip():
                place = Place(source_name(name), number)
                read = _row(line.split("\t"), place)
                if isinstance(read, str):
                    fault(problems, "broken row", place, read)
                else:
                    examples.append(read)
    return Dataset(tuple(examples), ", ".join(map(source_name, names)), "read as: GAP's pronouns and names")


def _row(cells: Sequence[str], place: Place) -> GapExample | str:
    """The example, or what is wrong with the row."""
    if len(cells) < len(HEADER):
        return f"{len(cells)} columns, but GAP has {len(HEADER)} and the page"
    row = dict(zip(HEADER, cells, strict=False))
    spans = []
    for what in ("Pronoun", "A", "B"):
        offset = row[f"{what}-offset"]
        start = int(offset) if offset.isdecimal() else -1
        if start < 0 or not row["Text"].startswith(row[what], start):
            return f"{what} {row[what]!r:.60} is not at character {offset:.20} of the text"
        spans.append((start, start + len(row[what])))
    truths = [row[f"{what}-coref"].upper() for what in ("A", "B")]
    if not {*truths} <= {"TRUE", "FALSE"} or row["Pronoun"].lower() not in FEMININE | MASCULINE:
        return "whether a name corefers is TRUE or FALSE, and the pronoun one of she, her, hers, he, his, him"
    pronoun, a, b = spans
    return GapExample(row["Text"], pronoun, (a, b), (truths[0] == "TRUE", truths[1] == "TRUE"), place, row["ID"])


def corefers(example: GapExample, clusters: Sequence[Sequence[Characters]]) -> tuple[bool, bool]:
    """Which names a clustering of characters gives the pronoun."""
    mine = next((cluster for cluster in clusters if example.pronoun in cluster), ())
    others = [(start, end) for start, end in mine if example.text[start:end].lower() not in FEMININE | MASCULINE]
    a, b = (any(start < stop and begin < end for start, end in others) for begin, stop in example.names_in_text)
    return a, b


def gap_metrics(examples: Sequence[GapExample], answers: Sequence[tuple[bool, bool]]) -> dict[str, ResampledMetric]:
    """F1 over all pronouns, of each gender, and the ratio feminine / masculine."""
    rows = np.zeros((len(examples), 2, 3))  # gender; right, answered, gold
    for row, example, answer in zip(rows, examples, answers, strict=True):
        for gold, predicted in zip(example.coreferent, answer, strict=True):
            row[int(example.feminine)] += (gold and predicted, predicted, gold)
    return {
        "gap-f1": ResampledMetric(rows, lambda sums: _f1(sums.sum(-2))),
        "gap-f1-masculine": ResampledMetric(rows, lambda sums: _f1(sums[..., 0, :])),
        "gap-f1-feminine": ResampledMetric(rows, lambda sums: _f1(sums[..., 1, :])),
        "gap-bias": ResampledMetric(rows, lambda sums: divide(_f1(sums[..., 1, :]), _f1(sums[..., 0, :]))),
    }


def _f1(sums: Doubles) -> Doubles:
    return divide(2 * sums[..., 0], sums[..., 1] + sums[..., 2])
