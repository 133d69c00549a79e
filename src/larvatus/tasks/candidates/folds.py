"""Folds for cross-validation: stratified by label, whole groups and equal texts in one fold.

fold_E = assign_folds(data, 5)              # the fold of each example, the same for all candidates
train, test = select(data, fold_E != 0), select(data, fold_E == 0)
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Example
from larvatus.data.labelled.split import strata_of, unit_word, units_of


def assign_folds(data: Dataset[Example], folds: int, *, seed: int = 0) -> Ints:
    """The fold of each example, as a function of the seed and the order of the examples.

    Units (a group, or equal texts) are assigned in random order, large ones first, each to the fold that has the fewest
    examples of its labels, then the fewest examples.
    """
    owners, strata = units_of(data), strata_of(data)
    sizes = Counter(owners)
    if len(sizes) < folds:
        word = unit_word(data) or "different examples"
        raise DataError(f"{data.source}: {len(sizes)} {word} are too few for {folds} folds; give --trained all")
    labels = [Counter[str]() for _ in sizes]
    for owner, stratum in zip(owners, strata, strict=True):
        labels[owner].update(stratum)
    order = stream(seed, "candidate folds").permutation(len(sizes)).tolist()
    order.sort(key=lambda unit: (-sizes[unit], min(labels[unit])))  # stable: random among equals
    held = [Counter[str]() for _ in range(folds)]
    filled = [0] * folds
    place = [0] * len(sizes)
    for unit in order:
        wanted = labels[unit]
        place[unit] = min(range(folds), key=lambda fold: (sum(held[fold][name] for name in wanted), filled[fold]))
        held[place[unit]].update(wanted)
        filled[place[unit]] += sizes[unit]
    return np.array([place[owner] for owner in owners], np.int64)


def select(data: Dataset[Example], chosen: npt.NDArray[np.bool_]) -> Dataset[Example]:
    """The examples where `chosen` is true."""
    examples = tuple(example for example, kept in zip(data.examples, chosen.tolist(), strict=True) if kept)
    return dataclasses.replace(data, examples=examples)
