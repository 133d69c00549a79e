"""Attention of some tokens to others: a sequence's to themselves, or a decoder's to what its encoder has read.

    y_i = Σ_j softmax_j(q_i · k_j + bias_ij) v_j          as T5 has it: the scores are not divided by √K

Sequences whose lengths agree, of queries and of keys, form one block without a padded token. A layout says which:

    pairs = Paired.of(torch.tensor([2, 1]), torch.tensor([5, 4]))     # 2 and 1 tokens that read 5 and 4
    pairs.across.groups                                               # ((1, 1, 4), (1, 2, 5)): sequences, queries, keys

N tokens that ask, M tokens that are asked, H heads, K size of a head, D hidden size; B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.arrays import Ints
from larvatus.batch import ranges
from larvatus.nn.attention.grouped import attention_weights, self_attention
from larvatus.nn.attention.layout import Grouped
from larvatus.nn.attention.sight import FULL, Sight
from larvatus.nn.uncompiled import uncompiled

Group = tuple[int, int, int]
"""Sequences, the queries of each, and the keys of each."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The groups of a batch. An object, so that a compiled model hands it on without looking inside."""

    groups: tuple[Group, ...]


@uncompiled
def within(layout: Grouped) -> Blocks:
    """Of sequences that look at themselves."""
    return Blocks(tuple((count, length, length) for count, length in layout.groups))


@dataclass(frozen=True, eq=False)
class Paired:
    """Sequences of a decoder, each with the one of the encoder that it reads, sorted by both lengths.

    >>> Paired.of(torch.tensor([2, 1, 2]), torch.tensor([5, 4, 5])).across.groups
    ((1, 1, 4), (2, 2, 5))
    """

    itself: Blocks  # of the decoder's tokens to themselves
    across: Blocks  # of the decoder's tokens to the encoder's
    order: Tensor  # [N] the token of the decoder that stands at each place after sorting
    inverse: Tensor  # [N] the opposite
    read: Tensor  # [M] the token of the encoder that stands at each place
    longest: int  # tokens of the longest sequence of the decoder

    @classmethod
    @uncompiled
    def of(cls, lengths: Tensor, read: Tensor) -> Paired:
        """From the lengths of the decoder's sequences and of the encoder's, [B] each, which the host reads."""
        asks, asked = torch.stack([lengths, read]).cpu().numpy()
        by_length = np.lexsort((asked, asks))
        both, counts = np.unique(np.stack([asks, asked], 1), axis=0, return_counts=True)
        alone, alike = np.unique(asks, return_counts=True)
        order = _laid_out(asks, by_length)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        order_N, inverse_N, read_M = (
            torch.from_numpy(array).to(lengths.device) for array in (order, inverse, _laid_out(asked, by_length))
        )
        return cls(
            itself=Blocks(tuple((int(count), int(q), int(q)) for q, count in zip(alone, alike, strict=True) if q)),
            across=Blocks(tuple((int(count), int(q), int(k)) for (q, k), count in zip(both, counts, strict=True))),
            order=order_N,
            inverse=inverse_N,
            read=read_M,
            longest=int(asks.max(initial=0)),
        )


def _laid_out(lengths: Ints, order: Ints) -> Ints:
    """The tokens of sequences that are laid end to end in another order."""
    starts = np.cumsum(lengths) - lengths
    return np.repeat(starts[order], lengths[order]) + ranges(lengths[order])


@uncompiled
def attend(q_NHK: Tensor, kv_M2HK: Tensor, blocks: Blocks, sight: Sight = FULL, *, dropout: float = 0.0) -> Tensor:
    """Each query looks at the keys of its own sequence: [N, H, K] → [N, H, K]. Not compiled: shapes differ."""
    groups = blocks.groups
    queries = q_NHK.split([count * length for count, length, _ in groups])
    keys = kv_M2HK.split([count * length for count, _, length in groups])
    out = []
    for q, kv, (count, asks, asked) in zip(queries, keys, groups, strict=True):
        if not (asks and asked):  # nobody asks, or there is nothing to see
            out.append(torch.zeros_like(q))
            continue
        q_BHLK = q.view(count, asks, *q.shape[1:]).transpose(1, 2)
        k_BHLK, v_BHLK = kv.view(count, asked, *kv.shape[1:]).permute(2, 0, 3, 1, 4)
        y_BHLK = self_attention(
            q_BHLK,
            k_BHLK,
            v_BHLK,
            dropout=dropout,
            seen_LL=sight.seen(asks, q.device),
            bias_HLL=sight.bias_of(asks),
            scale=1.0,
        )
        out.append(y_BHLK.transpose(1, 2).flatten(0, 1))
    return torch.cat(out) if out else torch.zeros_like(q_NHK)


def attended(q_NHK: Tensor, kv_M2HK: Tensor, blocks: Blocks, sight: Sight = FULL) -> list[Tensor]:
    """The weights by themselves, [H, queries, keys] of each sequence in the order of the groups. For looking inside."""
    groups = blocks.groups
    queries = q_NHK.split([count * length for count, length, _ in groups])
    keys = kv_M2HK[:, 0].split([count * length for count, _, length in groups])
    weights: list[Tensor] = []
    for q, k, (count, asks, asked) in zip(queries, keys, groups, strict=True):
        q_BHLK, k_BHLK = (x.view(count, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k))
        q_BHLK = q_BHLK * q.shape[-1] ** 0.5  # which the next line divides by
        weights.extend(
            attention_weights(
                q_BHLK, k_BHLK, seen_LL=sight.seen(asks, q.device) if asks == asked else None,
                bias_HLL=sight.bias_of(asks),
            )
        )  # fmt: skip
    return weights


class CrossAttention(nn.Module):
    """Queries of one text, keys and values of another, or of the same; no biases, heads of any size."""

    stacked: ClassVar[dict[str, int]] = {"kv.weight": 2}
    """As in `Attention`: keys and values are one matrix."""

    def __init__(self, *, hidden: int, heads: int, size: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size, self.dropout = heads, size, dropout
        self.q = nn.Linear(hidden, heads * size, bias=False)
        self.kv = nn.Linear(hidden, 2 * heads * size, bias=False)
        self.out = nn.Linear(heads * size, hidden, bias=False)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """As T5's code: the deviation of queries takes the place of the division by √K."""
        hidden, inner = self.q.in_features, self.q.out_features
        deviations = {self.q: (hidden * self.size) ** -0.5, self.kv: hidden**-0.5, self.out: inner**-0.5}
        for linear, deviation in deviations.items():
            drawn = torch.empty(linear.weight.shape, dtype=torch.float32)
            linear.weight.copy_(drawn.normal_(std=deviation, generator=generator))

    def queries(self, x_ND: Tensor) -> Tensor:
        """[N, D] → [N, H, K]."""
        q_NHK: Tensor = self.q(x_ND).unflatten(-1, (self.heads, self.size))
        return q_NHK

    def keys_and_values(self, x_MD: Tensor) -> Tensor:
        """[M, D] → [M, 2, H, K]."""
        kv_M2HK: Tensor = self.kv(x_MD).unflatten(-1, (2, self.heads, self.size))
        return kv_M2HK

    def forward(self, x_ND: Tensor, read_MD: Tensor, blocks: Blocks, sight: Sight = FULL) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        y_NHK = attend(self.queries(x_ND), self.keys_and_values(read_MD), blocks, sight, dropout=dropout)
        if sight.heads is not None:
            y_NHK = y_NHK * sight.heads[:, None].to(y_NHK.dtype)
        y_ND: Tensor = self.out(y_NHK.flatten(-2))
        return y_ND
