"""Examples of several tasks: data sets by task, and the batches that they are trained in.

    train = TaskDatasets.of({"tag": tagged, "classify": texts})
    batches = TaskBatches({"tag": …, "classify": …}, heads)
    batches.epoch_batches(seed=1, epoch=0, size=32)     # numbers of examples; those of the second task follow the first

Every step has examples of every task: that of the largest set has `batch` of them, one of n examples where the largest
has N has batch × (n / N)^α, at least one. An epoch is one pass over the largest set. So every parameter has a gradient
in every step, as Adam's moments and their checkpoints expect, and the encoder never forgets one task over another. α is
1/2, halfway between proportional batches (1), which starve small sets, and equal ones (0), which repeat them often
(Wang et al. 2020 and Devlin's multilingual BERT sample by size^α for the same reason).

Each task goes through its own examples in permutations, f(seed, task, pass). What a step holds depends on seed and step
only, so a run that is stopped and resumed ends with the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset
from larvatus.models.heads.head import HeadConfig
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.features import EncodedExamples

ALPHA = 0.5
"""Exponent of the size of a set in its share of a step."""


@dataclass(frozen=True)
class TaskDatasets(Dataset[Any]):
    """The data sets of several tasks; as one data set, it has the examples of all in turn."""

    parts: Mapping[str, Dataset[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Dataset[Any]]) -> Self:
        return cls(
            examples=tuple(example for part in parts.values() for example in part.examples),
            source=", ".join(f"{part.source} ({task})" for task, part in parts.items()),
            groups={place: group for part in parts.values() for place, group in part.groups.items()},
            parts=parts,
        )

    def describe(self) -> str:
        return "\n".join(f"{task}: {part.describe()}" for task, part in self.parts.items())


@dataclass(frozen=True, eq=False)
class TaskBatches:
    """Encoded training examples of several tasks, in one row of numbers."""

    parts: Mapping[str, EncodedExamples]
    """By task."""
    heads: Mapping[str, HeadConfig]
    """The head of each task; its `weight` is that of its mean loss in the loss of a step."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Factor of the rate of each task's head."""

    def __len__(self) -> int:
        """Examples of the largest set, which an epoch is a pass over."""
        return max(map(len, self.parts.values()))

    def split(self, examples: Ints) -> Iterator[tuple[str, Ints]]:
        """Each task of a step with its examples, as it numbers them."""
        borders = [0, *accumulate(map(len, self.parts.values()))]
        for task, (first, last) in zip(self.parts, pairwise(borders), strict=True):
            yield task, examples[(examples >= first) & (examples < last)] - first

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        raise TypeError("a batch is of one task: use `split`")

    @property
    def sequences(self) -> Sequences:
        raise TypeError("sequences are of one task: use `parts`")

    def steps(self, size: int) -> int:
        return -(-len(self) // size)

    def quotas(self, size: int) -> dict[str, int]:
        """Examples of each task in an epoch."""
        most, steps = len(self), self.steps(size)
        return {task: max(steps, round(most * (len(part) / most) ** ALPHA)) for task, part in self.parts.items()}

    def epoch_batches(self, seed: int, epoch: int, size: int) -> Sequence[Ints]:
        """The examples of each step: every task's quota of the epoch, divided evenly over the steps."""
        steps, quotas = self.steps(size), self.quotas(size)
        before, rows = 0, list[Sequence[Ints]]()
        for task, part in self.parts.items():
            first = epoch * quotas[task]
            chosen = _passes(seed, task, len(part), first, first + quotas[task])
            rows.append(np.array_split(before + chosen, steps))
            before += len(part)
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def remarks(self, size: int) -> Sequence[str]:
        quotas = self.quotas(size)
        shares = " · ".join(
            f"{task} {quotas[task] / self.steps(size):.3g} texts a step, {quotas[task] / len(part):.3g} passes an epoch"
            for task, part in self.parts.items()
        )
        return [f"each step has every task: {shares}"]


def _passes(seed: int, task: str, size: int, first: int, last: int) -> Ints:
    """Examples first … last − 1 of an endless row of permutations of all."""
    passes = range(first // size, (last - 1) // size + 1)
    row = np.concatenate([stream(seed, f"finetune order {task}", number).permutation(size) for number in passes])
    start = passes[0] * size
    return row[first - start : last - start].astype(np.int64)


def long_texts(data: EncodedExamples) -> tuple[int, int]:
    """Examples that are longer than a window, and their windows."""
    each = data.parts.values() if isinstance(data, TaskBatches) else (data,)
    counts = np.concatenate([part.sequences.parts for part in each])
    return int((counts > 1).sum()), int(counts[counts > 1].sum())


def parts_of(data: Dataset[Any] | None) -> Mapping[str, Dataset[Any]]:
    """Data sets by task."""
    return data.parts if isinstance(data, TaskDatasets) else {}
