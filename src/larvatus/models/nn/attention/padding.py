"""Sequences of different lengths as one block for attention with a bias, where a GPU would wait for many small kernels.

Where scores have a bias, the variable-length kernels of CUDA cannot be used, and a block for each length (`layout.py`)
is a launch of kernels for each length. So on CUDA sequences of about the same length share a block, filled up to the
longest, and what was filled up is masked. Only attention sees it: everything else works on the flat batch.

    >>> padding = Padding.of(np.array([1, 3]), torch.device("cpu"))
    >>> padding.block(torch.tensor([7, 8, 9, 10]))[padding.real].tolist()
    [7, 8, 9, 10]
    >>> padding.flat(padding.block(torch.tensor([7, 8, 9, 10]))).tolist()
    [7, 8, 9, 10]

n tokens of B sequences, the longest of L.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import ranges

SHORT = 16
"""Sequences up to this long share a block."""


@dataclass(frozen=True, eq=False)
class Padding:
    rows: (
        Tensor  # [B · L] the token at each place of the block; after the end of a sequence some other, which is masked
    )
    real: Tensor  # [B, L] whether a place is inside its sequence
    places: Tensor  # [n] where each token stands in the block

    @classmethod
    def of(cls, lengths: Ints, device: torch.device) -> Padding:
        longest = int(lengths.max(initial=0))
        starts = np.cumsum(lengths) - lengths
        steps = np.arange(longest)
        rows = np.minimum(starts[:, None] + steps, max(int(lengths.sum()) - 1, 0))
        places = np.repeat(np.arange(len(lengths)) * longest, lengths) + ranges(lengths)
        arrays = rows.ravel(), steps < lengths[:, None], places
        return cls(*(torch.from_numpy(array).to(device, non_blocking=True) for array in arrays))

    def block(self, x: Tensor) -> Tensor:
        """[n, …] → [B, L, …]."""
        laid: Tensor = x.index_select(0, self.rows).unflatten(0, self.real.shape)
        return laid

    def flat(self, x: Tensor) -> Tensor:
        """[B, L, …] → [n, …]."""
        return x.flatten(0, 1).index_select(0, self.places)


def kind_of(lengths: Ints, *, padded: bool) -> Ints:
    """What sequences of one block have in common: their length, or the power of two above it.

    >>> kind_of(np.array([0, 3, 16, 17, 100]), padded=True).tolist()
    [0, 16, 16, 32, 128]
    """
    if not padded:
        return lengths
    powers = 2 ** np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return np.where(lengths > 0, np.maximum(powers, SHORT), 0)


def filled_up(lengths: Ints, device: torch.device) -> Padding | None:
    """None where lengths are equal, and nothing is to be filled up."""
    return None if len(lengths) == 0 or lengths.min() == lengths.max() else Padding.of(lengths, device)


def as_block(x: Tensor, count: int, length: int, padding: Padding | None) -> Tensor:
    """[n, …] → [B, L, …]: a view where nothing is filled up."""
    return x.unflatten(0, (count, length)) if padding is None else padding.block(x)


def as_rows(x: Tensor, padding: Padding | None) -> Tensor:
    """The opposite."""
    return x.flatten(0, 1) if padding is None else padding.flat(x)
