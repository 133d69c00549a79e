"""Where each sequence is in the flat batch, and which tokens attend to which.

    >>> GroupedLayout.of(torch.tensor([3, 1, 3])).groups
    ((1, 1), (2, 3))
    >>> AttentionMask(window=1, causal=True).seen(3, torch.device("cpu")).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]

**Layouts** are computed once per batch and shared by all layers:

    FlatLayout       tokens in their order, with the offsets of the sequences: for variable-length kernels on CUDA
    GroupedLayout    tokens sorted by the length of their sequence, so that sequences of one length form a [B, L] block
                     without padding or a copy: for every other device

The sorting is undone after the last layer, so nothing outside `nn/` sees it.

`Padding` joins sequences of different lengths into one block for attention with a bias. The variable-length kernels of
CUDA have no bias, and a block for each length is a kernel launch for each length. So on CUDA sequences of similar
length share a block, padded to the longest, and the padding is masked. Only attention sees it: everything else works on
the flat batch.

    >>> padding = Padding.of(np.array([1, 3]), torch.device("cpu"))
    >>> padding.flat(padding.block(torch.tensor([7, 8, 9, 10]))).tolist()
    [7, 8, 9, 10]

**Masks**, and biases on the scores, may differ between layers; layers with equal settings share one:

    AttentionMask()                        every token attends to all tokens of its sequence (BERT)
    AttentionMask(window=64)               token i attends to j if |i − j| ≤ 64 (Beltagy et al. 2020, *Longformer*)
    AttentionMask(causal=True)             token i attends to j if j ≤ i (a left-to-right model)
    AttentionMask(bias=table)              a number is added to each score (`RelativeBias`)

N tokens of B sequences, the longest of L; H heads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import ranges
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.positions import Rotation


@dataclass(frozen=True, eq=False)
class FlatLayout:
    edges: Tensor  # [B + 1] int32, the offset of each sequence; the last entry is N
    limit: int  # no sequence is longer; constant over a phase of training, so that a compiled step never sees it change

    @classmethod
    def of(cls, lengths: Tensor, *, limit: int) -> FlatLayout:
        return cls(edges=F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32), limit=limit)

    def arrange(self, x: Tensor) -> Tensor:
        return x

    def restore(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True, eq=False)
class GroupedLayout:
    groups: tuple[tuple[int, int], ...]  # (sequences, tokens of each), shortest first
    order: Tensor | None  # [N] the token at each place after sorting; None if the batch is sorted already
    inverse: Tensor | None  # [N] the inverse

    @classmethod
    @uncompiled
    def of(cls, lengths: Tensor) -> GroupedLayout:
        """From lengths, which are read on the host."""
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
        """[N, …] in the batch's order → [N, …] by length."""
        return x if self.order is None else x.index_select(0, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """The inverse of `arrange`."""
        return x if self.inverse is None else x.index_select(0, self.inverse)


TokenLayout = FlatLayout | GroupedLayout


SHORT = 16
"""Sequences up to this length share a block."""


@dataclass(frozen=True, eq=False)
class Padding:
    rows: Tensor  # [B · L] the token at each place of the block; past the end of a sequence some other, which is masked
    real: Tensor  # [B, L] whether a place is inside its sequence
    places: Tensor  # [n] the place of each token in the block

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


def length_class(lengths: Ints, *, padded: bool) -> Ints:
    """What sequences of one block have in common: their length, or the power of two above it.

    >>> length_class(np.array([0, 3, 16, 17, 100]), padded=True).tolist()
    [0, 16, 16, 32, 128]
    """
    if not padded:
        return lengths
    powers = 2 ** np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return np.where(lengths > 0, np.maximum(powers, SHORT), 0)


def padding_if_needed(lengths: Ints, device: torch.device) -> Padding | None:
    """None if lengths are equal, so that nothing is padded."""
    return None if len(lengths) == 0 or lengths.min() == lengths.max() else Padding.of(lengths, device)


def to_block(x: Tensor, count: int, length: int, padding: Padding | None) -> Tensor:
    """[n, …] → [B, L, …]: a view if nothing is padded."""
    return x.unflatten(0, (count, length)) if padding is None else padding.block(x)


def to_rows(x: Tensor, padding: Padding | None) -> Tensor:
    """The inverse."""
    return x.flatten(0, 1) if padding is None else padding.flat(x)


# Masks.


@dataclass(frozen=True, eq=False)
class AttentionMask:
    window: int = 0  # tokens on either side; 0: the whole sequence
    causal: bool = False  # no token attends to a later one
    rotation: Rotation | None = (
        None  # rotation of queries and keys, by the positions of the tokens in the layout's order
    )
    bias: Tensor | None = None  # [H, L, L] on the scores of the longest sequence; a shorter one uses its corner

    @property
    def plain(self) -> bool:
        """Whether all tokens attend to each other, without a bias."""
        return not (self.window or self.causal) and self.rotation is None and self.bias is None

    def seen(self, length: int, device: torch.device) -> Tensor | None:
        """A mask [L, L], true where the query of a row attends to the key of a column; None if it always does."""
        return band(length, self.window, device, causal=self.causal)

    def bias_of(self, length: int) -> Tensor | None:
        """The bias of a sequence of this length, [H, L, L]."""
        return None if self.bias is None else self.bias[:, :length, :length]


FULL = AttentionMask()
"""Every token attends to all tokens of its sequence."""


def band(length: int, window: int, device: torch.device, *, causal: bool = False) -> Tensor | None:
    """A mask [L, L] of tokens at most `window` apart. None if that is all of them."""
    if length <= 1 or (not causal and (window == 0 or length <= window + 1)):
        return None
    return _wide_band(1 << (length - 1).bit_length(), window, device, causal)[:length, :length]


@functools.lru_cache(maxsize=8)
def _wide_band(length: int, window: int, device: torch.device, causal: bool) -> Tensor:
    """Masks of all shorter lengths are corners of this one, so few are cached."""
    with torch.inference_mode(False):  # created during an evaluation, it must still work in training afterwards
        places_L = torch.arange(length, device=device)
        back_LL = places_L[:, None] - places_L[None, :]  # how far before the query the key is
        seen_LL = back_LL.abs() <= (window or length)
        return seen_LL & (back_LL >= 0) if causal else seen_LL
