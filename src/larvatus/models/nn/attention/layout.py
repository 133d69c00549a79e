"""Where each sequence lies in the flat batch, worked out once per batch and shared by all layers.

    Packed     the tokens as they come, with the edges of the sequences: what variable-length kernels on CUDA want
    Grouped    the tokens sorted by the length of their sequence, so that sequences of one length form a [B, L] block
               without a padded token and without a copy: what every other device gets

Sorting is undone after the last layer, so nobody outside `nn/` sees it. Which token sees which is not said here, but by
`sight.py`.

    >>> Grouped.of(torch.tensor([3, 1, 3])).groups
    ((1, 1), (2, 3))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.batch import ranges
from larvatus.models.nn.uncompiled import uncompiled


@dataclass(frozen=True, eq=False)
class Packed:
    edges: Tensor  # [B + 1] int32, where each sequence begins; the last entry is N
    limit: int  # no sequence is longer; constant over a phase of training, so that a compiled step never sees it change

    @classmethod
    def of(cls, lengths: Tensor, *, limit: int) -> Packed:
        return cls(edges=F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32), limit=limit)

    def arrange(self, x: Tensor) -> Tensor:
        return x

    def restore(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True, eq=False)
class Grouped:
    groups: tuple[tuple[int, int], ...]  # (sequences, tokens of each), shortest first
    order: Tensor | None  # [N] the token that stands at each place after sorting; None when the batch came sorted
    inverse: Tensor | None  # [N] the opposite

    @classmethod
    @uncompiled
    def of(cls, lengths: Tensor) -> Grouped:
        """Reads the lengths on the host."""
        host = lengths.detach().cpu().numpy()
        sizes, counts = np.unique(host, return_counts=True)
        groups = tuple((int(count), int(size)) for size, count in zip(sizes, counts, strict=True) if size > 0)
        if np.all(host[1:] >= host[:-1]):
            return cls(groups=groups, order=None, inverse=None)
        by_length = np.argsort(host, kind="stable")
        starts = np.cumsum(host) - host
        order = np.repeat(starts[by_length], host[by_length]) + ranges(host[by_length])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return cls(
            groups=groups,
            order=torch.from_numpy(order).to(lengths.device),
            inverse=torch.from_numpy(inverse).to(lengths.device),
        )

    def arrange(self, x: Tensor) -> Tensor:
        """[N, …] as the batch has it → [N, …] by length."""
        return x if self.order is None else x.index_select(0, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """The opposite of `arrange`."""
        return x if self.inverse is None else x.index_select(0, self.inverse)


Layout = Packed | Grouped
