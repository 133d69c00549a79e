"""Where the tokens of a batch are for attention in two streams, computed once per batch and shared by all layers.

As in `GroupedLayout` (`layout.py`), equal sequences form a block without padding, but here three numbers must be equal:
tokens, states that are remembered from before (Transformer-XL), and queried positions of the second stream. A batch
without the last two is grouped as `GroupedLayout` does it. On CUDA, sequences with similar numbers of tokens and
positions share a padded block.

    >>> streams = StreamLayout.of(torch.tensor([3, 2, 3]), places=torch.tensor([1, 2, 6]))  # 2 of the 1st, 1 of the 3rd
    >>> [(group.count, group.length, group.query_length) for group in streams.groups]
    [(1, 2, 0), (1, 3, 1), (1, 3, 2)]

N tokens, M queried positions, B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges
from larvatus.models.nn.attention.layout import Padding, length_class, padding_if_needed, to_block
from larvatus.models.nn.compiling import uncompiled


@dataclass(frozen=True)
class StreamGroup:
    """Sequences that form one block."""

    count: int
    length: int
    """Tokens of each; of the longest if they differ."""
    remembered: int
    """Remembered states of each."""
    query_length: int
    """Queried positions of each in the second stream."""
    tokens: Padding | None = None
    queries: Padding | None = None

    def block(self, x: Tensor, *, queried: bool = False) -> Tensor:
        """Values of tokens, or of queried positions: [n, …] → [B, L, …]."""
        return to_block(x, self.count, *((self.query_length, self.queries) if queried else (self.length, self.tokens)))

    def rows(self, *, queried: bool) -> int:
        """Tokens, or queried positions, of all sequences together."""
        padding, each = (self.queries, self.query_length) if queried else (self.tokens, self.length)
        return self.count * each if padding is None else len(padding.places)


@dataclass(frozen=True, eq=False)
class RowOrder:
    """The order of rows in the batch and in the groups; None if they are equal."""

    order: Tensor | None
    inverse: Tensor | None

    def arrange(self, x: Tensor) -> Tensor:
        """Rows of the batch in the order of the groups."""
        return x if self.order is None else x.index_select(0, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """The inverse."""
        return x if self.inverse is None else x.index_select(0, self.inverse)

    @classmethod
    def of_runs(cls, lengths: Ints, chosen: Ints, device: torch.device) -> RowOrder:
        """Runs of rows of these lengths, concatenated in the order `chosen`."""
        if np.all(chosen[1:] > chosen[:-1]):
            return cls(None, None)
        order = np.repeat(edges(lengths)[chosen], lengths[chosen]) + ranges(lengths[chosen])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return cls(torch.from_numpy(order).to(device), torch.from_numpy(inverse).to(device))


@dataclass(frozen=True, eq=False)
class StreamLayout:
    groups: tuple[StreamGroup, ...]
    tokens: RowOrder
    memory: RowOrder
    queries: RowOrder
    places: Tensor
    """[M] the position of each query in its own sequence, in the order of the groups."""

    @property
    def longest(self) -> int:
        return max((group.length for group in self.groups), default=0)

    @classmethod
    @uncompiled
    def of(
        cls,
        lengths: Tensor,
        *,
        places: Tensor | None = None,
        remembered: Tensor | None = None,
        padded: bool | None = None,
    ) -> StreamLayout:
        """From lengths, which are read on the host. `places` [M] are positions in the flat batch, ascending;
        `remembered` [B].

        `padded`: group sequences with similar numbers; by default on CUDA.
        """
        device = lengths.device
        padded = device.type == "cuda" if padded is None else padded
        length_B = lengths.detach().cpu().numpy()
        memory_B = np.zeros_like(length_B) if remembered is None else remembered.detach().cpu().numpy()
        places_M = np.empty(0, np.int64) if places is None else places.detach().cpu().numpy()
        starts_B = edges(length_B)
        owners_M = np.searchsorted(starts_B[1:], places_M, side="right")
        queries_B = np.bincount(owners_M, minlength=len(length_B)).astype(np.int64)
        kinds_B3 = np.stack(
            [length_class(length_B, padded=padded), memory_B, length_class(queries_B, padded=padded)], 1
        )
        chosen_B = np.lexsort(kinds_B3.T[::-1])  # the length decides first
        chosen_B = chosen_B[length_B[chosen_B] > 0]
        queries = RowOrder.of_runs(queries_B, chosen_B, device)
        inner_M = torch.from_numpy(places_M - starts_B[owners_M]).to(device)
        return cls(
            groups=_groups(kinds_B3[chosen_B], length_B[chosen_B], memory_B[chosen_B], queries_B[chosen_B], device),
            tokens=RowOrder.of_runs(length_B, chosen_B, device),
            memory=RowOrder.of_runs(memory_B, chosen_B, device),
            queries=queries,
            places=queries.arrange(inner_M),
        )


def _groups(
    kinds_B3: Ints, length_B: Ints, memory_B: Ints, queries_B: Ints, device: torch.device
) -> tuple[StreamGroup, ...]:
    """Sequences of one kind are adjacent."""
    if not len(kinds_B3):
        return ()
    starts = [0, *np.flatnonzero(np.any(kinds_B3[1:] != kinds_B3[:-1], axis=1)) + 1]
    return tuple(
        StreamGroup(
            count=int(end - start),
            length=int(length_B[start:end].max()),
            remembered=int(memory_B[start]),
            query_length=int(queries_B[start:end].max()),
            tokens=padding_if_needed(length_B[start:end], device),
            queries=padding_if_needed(queries_B[start:end], device),
        )
        for start, end in zip(starts, [*starts[1:], len(kinds_B3)], strict=True)
    )
