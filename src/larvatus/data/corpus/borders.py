"""Where steps begin and end: a row of blocks is cut into runs of whole sequences within a budget, by lengths alone.

for stretches, cursor in cut_steps(blocks, first=0, budget=65_536):
    …                    # the blocks that the step takes from, first and last sequence of each; where the next begins
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges

Content = TypeVar("Content")


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sequence that comes next; all that a resume needs."""

    epoch: int = 0
    block: int = 0
    sequence: int = 0


class Row(NamedTuple, Generic[Content]):
    """A block in its place: what it holds, and how long its sequences are."""

    epoch: int
    block: int
    content: Content
    lengths: Ints


class Stretch(NamedTuple, Generic[Content]):
    """Sequences first … last − 1 of a block."""

    content: Content
    first: int
    last: int


def cut_steps(
    blocks: Iterator[Row[Content]], first: int, budget: int
) -> Iterator[tuple[list[Stretch[Content]], Cursor]]:
    """Cut the row of blocks into steps of whole sequences within the budget; a step may take from several blocks."""
    stretches: list[Stretch[Content]] = []
    room = budget
    for epoch, block, content, lengths in blocks:
        edge = edges(lengths)
        while first < len(lengths):
            last = int(np.searchsorted(edge, edge[first] + room, side="right")) - 1
            if last > first:
                stretches.append(Stretch(content, first, last))
                room -= int(edge[last] - edge[first])
                first = last
            if first < len(lengths):  # the next sequence does not fit: the step is full
                yield stretches, Cursor(epoch, block, first)
                stretches, room = [], budget
        first = 0  # what room is left goes to the next block
