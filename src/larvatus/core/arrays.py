"""Names for the kinds of NumPy arrays that the package uses, and records of arrays.

    def edges(lengths: Ints) -> Ints: ...

`Integers` are of any width, as they come from files and tokenizers; `Ints` are what is computed with.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
Bits = npt.NDArray[np.uint64]
Bits32 = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]
"""Rows of named fields."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def constant_array(value: int, size: int) -> Ints:
    """One number repeated, in the memory of one: it is neither sent between processes nor to a device as a column.

    >>> constant_array(-1, 3).tolist(), is_constant(constant_array(-1, 3)), is_constant(np.array([-1, -1, -1]))
    ([-1, -1, -1], True, False)
    """
    return np.broadcast_to(np.int64(value), (size,))


def is_constant(array: npt.NDArray[Any]) -> bool:
    """Whether an array is of that kind."""
    return array.strides == (0,) and len(array) > 0


def concatenate_arrays(arrays: Sequence[Ints]) -> Ints:
    """Arrays end to end."""
    if all(is_constant(array) and array[0] == arrays[0][0] for array in arrays):
        return constant_array(int(arrays[0][0]), sum(map(len, arrays)))
    return np.concatenate(arrays)


def pad_array(array: Ints, size: int, value: int) -> Ints:
    """The array with `value` behind it, `size` long."""
    if is_constant(array) and array[0] == value:
        return constant_array(value, size)
    return np.concatenate([array, np.full(size - len(array), value, dtype=np.int64)])


def even_runs(edge: Ints, budget: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut a row of items, whose borders are given, into even runs (first, last): as few as stay near the budget each.

    Their number is a multiple of `multiple` where there are items enough.

    >>> even_runs(np.array([0, 4, 8, 12, 16]), 12), even_runs(np.array([0, 4, 8, 12, 16]), 12, multiple=4)
    ([(0, 2), (2, 4)], [(0, 1), (1, 2), (2, 3), (3, 4)])
    """
    size = int(edge[-1])
    count = multiple * max(1, -(-size // (budget * multiple)))
    borders = np.searchsorted(edge, np.arange(1, count) * (size / count))
    runs = itertools.pairwise([0, *borders.tolist(), len(edge) - 1])
    return [(first, last) for first, last in runs if last > first]


class ArrayRecord:
    """Frozen records of arrays: `map` applies one function (to a device, to torch) to each array."""

    def map(self, function: Callable[[Any], Any]) -> Any:
        """The same record with one function applied to each of its arrays.

        Args:
            function: Such as `torch.from_numpy`.
        """
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                value = value.map(function) if isinstance(value, ArrayRecord) else function(value)
            fields[field.name] = value
        return type(self)(**fields)


class TargetRecord(ArrayRecord):
    """Base of targets: by default every array has one row for each sequence (`per_token`: for each token).

    A kind whose arrays have other rows overrides `cut`, and `join` where rows name tokens or words.
    """

    per_token: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """How many predictions: the rows of the first array, unless a kind counts others."""
        return len(getattr(self, dataclasses.fields(self)[0].name))  # type: ignore[arg-type]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> Self:
        """The targets of a run of sequences, counted from its first token and sequence."""
        taken = slice(*(tokens if self.per_token else sequences))
        part: Self = self.map(lambda array: array[taken])
        return part

    @classmethod
    def join(cls, parts: Sequence[tuple[Any, int, int]]) -> Any:
        """The opposite: each part with the number of tokens and of sequences that come before it."""
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(part, name) for part, _, _ in parts]) for name in names})
