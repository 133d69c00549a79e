"""Where the tokens of a batch lie for attention in two streams, worked out once per batch and shared by all layers.

Like `Grouped` (`layout.py`), sequences that are alike form a block without a padded token, but here three things must
be alike: their tokens, the states that are remembered of what came before them (Transformer-XL), and the places at
which the second stream asks. A batch without the last two is grouped as `Grouped` does it.

    >>> streams = Streams.of(torch.tensor([3, 2, 3]), places=torch.tensor([1, 2, 6]))   # 2 of the first, 1 of the last
    >>> [(group.count, group.length, group.asked) for group in streams.groups]
    [(1, 2, 0), (1, 3, 1), (1, 3, 2)]

N tokens, M places asked at, B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.arrays import Ints
from larvatus.batch import edges, ranges
from larvatus.nn.uncompiled import uncompiled


@dataclass(frozen=True)
class Group:
    """Sequences that are alike."""

    count: int
    length: int
    """Tokens of each."""
    remembered: int
    """States of each that are kept from before."""
    asked: int
    """Places of each at which the second stream asks."""


@dataclass(frozen=True, eq=False)
class Order:
    """Rows as the batch has them, and as the groups have them; None where that is the same."""

    order: Tensor | None
    inverse: Tensor | None

    def arrange(self, x: Tensor) -> Tensor:
        """Rows of the batch in the order of the groups."""
        return x if self.order is None else x.index_select(0, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """The opposite."""
        return x if self.inverse is None else x.index_select(0, self.inverse)

    @classmethod
    def of_runs(cls, lengths: Ints, chosen: Ints, device: torch.device) -> Order:
        """Runs of rows of these lengths, one after another in the order `chosen`."""
        if np.all(chosen[1:] > chosen[:-1]):
            return cls(None, None)
        order = np.repeat(edges(lengths)[chosen], lengths[chosen]) + ranges(lengths[chosen])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return cls(torch.from_numpy(order).to(device), torch.from_numpy(inverse).to(device))


@dataclass(frozen=True, eq=False)
class Streams:
    groups: tuple[Group, ...]
    tokens: Order
    memory: Order
    queries: Order
    places: Tensor
    """[M] the place in its own sequence at which each query asks, in the order of the groups."""

    @property
    def longest(self) -> int:
        return max((group.length for group in self.groups), default=0)

    @classmethod
    @uncompiled
    def of(cls, lengths: Tensor, *, places: Tensor | None = None, remembered: Tensor | None = None) -> Streams:
        """Reads the lengths on the host. `places` [M] are those of the flat batch, ascending; `remembered` [B]."""
        device = lengths.device
        length_B = lengths.detach().cpu().numpy()
        memory_B = np.zeros_like(length_B) if remembered is None else remembered.detach().cpu().numpy()
        places_M = np.empty(0, np.int64) if places is None else places.detach().cpu().numpy()
        starts_B = edges(length_B)
        owners_M = np.searchsorted(starts_B[1:], places_M, side="right")
        asked_B = np.bincount(owners_M, minlength=len(length_B)).astype(np.int64)
        chosen_B = np.lexsort((asked_B, memory_B, length_B))  # the length decides first
        chosen_B = chosen_B[length_B[chosen_B] > 0]
        kinds, counts = np.unique(
            np.stack([length_B, memory_B, asked_B], 1)[chosen_B], axis=0, return_counts=True
        )  # sorted as the sequences are
        groups = tuple(Group(int(n), *map(int, kind)) for n, kind in zip(counts, kinds, strict=True))
        queries = Order.of_runs(asked_B, chosen_B, device)
        inner_M = torch.from_numpy(places_M - starts_B[owners_M]).to(device)
        return cls(
            groups=groups,
            tokens=Order.of_runs(length_B, chosen_B, device),
            memory=Order.of_runs(memory_B, chosen_B, device),
            queries=queries,
            places=queries.arrange(inner_M),
        )
