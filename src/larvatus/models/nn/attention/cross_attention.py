"""Cross-attention: tokens attend to others, of the same sequence or of the encoder that a decoder reads.

    y_i = Σ_j softmax_j(q_i · k_j + bias_ij) v_j          as in T5: the scores are not divided by √K

Sequences with equal numbers of queries and of keys form one block without padding; on CUDA, those whose numbers are
similar share a padded one (`layout.py`). A layout computes the groups:

    pairs = DecoderLayout.of(torch.tensor([2, 1]), torch.tensor([5, 4]))     # 2 and 1 tokens that read 5 and 4
    pairs.across.groups[0]                                            # 1 sequence of 1 query and 4 keys

N queries, M keys, H heads, K size of a head, D hidden size; B sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import ranges
from larvatus.models.nn.attention.attention import attention_weights, self_attention
from larvatus.models.nn.attention.layout import (
    FULL,
    AttentionMask,
    GroupedLayout,
    Padding,
    length_class,
    padding_if_needed,
    to_block,
    to_rows,
)
from larvatus.models.nn.compiling import uncompiled


@dataclass(frozen=True, eq=False)
class CrossGroup:
    """Sequences that are computed as one block."""

    count: int
    query_length: int
    """Queries of each; of the longest if they differ."""
    key_length: int
    """Keys of each."""
    queries: Padding | None = None
    keys: Padding | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Queries and keys of all sequences together."""
        queries = self.count * self.query_length if self.queries is None else len(self.queries.places)
        return queries, self.count * self.key_length if self.keys is None else len(self.keys.places)


@dataclass(frozen=True, eq=False)
class CrossGroups:
    """The groups of a batch. An object, so that a compiled model passes it on without tracing its contents."""

    groups: tuple[CrossGroup, ...]

    @classmethod
    def of(cls, query_lengths: Ints, key_lengths: Ints, *, padded: bool, device: torch.device) -> CrossGroups:
        """From numbers of queries and of keys, sorted so that those of a group are adjacent."""
        kinds = np.stack([length_class(query_lengths, padded=padded), length_class(key_lengths, padded=padded)], 1)
        ends = [*np.flatnonzero(np.any(kinds[1:] != kinds[:-1], axis=1)) + 1, len(kinds)]
        groups, start = [], 0
        for end in ends if len(kinds) else []:
            of_queries, of_keys = query_lengths[start:end], key_lengths[start:end]
            queries = padding_if_needed(of_queries, device)
            keys = queries if query_lengths is key_lengths else padding_if_needed(of_keys, device)
            groups.append(CrossGroup(int(end - start), int(of_queries.max()), int(of_keys.max()), queries, keys))
            start = end
        return cls(tuple(groups))


@uncompiled
def self_groups(layout: GroupedLayout, *, padded: bool = False, device: torch.device | None = None) -> CrossGroups:
    """The groups of sequences that attend to themselves."""
    counts, sizes = np.array(layout.groups, np.int64).reshape(-1, 2).T
    lengths = np.repeat(sizes, counts)
    return CrossGroups.of(lengths, lengths, padded=padded, device=device or torch.device("cpu"))


@dataclass(frozen=True, eq=False)
class DecoderLayout:
    """Sequences of a decoder, each with the encoder sequence that it reads, sorted by both lengths.

    >>> pairs = DecoderLayout.of(torch.tensor([2, 1, 2]), torch.tensor([5, 4, 5]))
    >>> [(group.count, group.query_length, group.key_length) for group in pairs.across.groups]
    [(1, 1, 4), (2, 2, 5)]
    """

    itself: CrossGroups  # the decoder's tokens to themselves
    across: CrossGroups  # the decoder's tokens to the encoder's
    order: Tensor  # [N] the decoder token at each place after sorting
    inverse: Tensor  # [N] the inverse
    read: Tensor  # [M] the encoder token at each place
    longest: int  # tokens of the decoder's longest sequence

    @classmethod
    @uncompiled
    def of(cls, lengths: Tensor, read: Tensor, *, padded: bool | None = None) -> DecoderLayout:
        """From the lengths of the decoder's sequences and of the encoder's, [B] each, which are read on the host.

        `padded`: group sequences of similar lengths; by default on CUDA.
        """
        device = lengths.device
        padded = device.type == "cuda" if padded is None else padded
        query_lengths, key_lengths = torch.stack([lengths, read]).cpu().numpy()
        by_length = np.lexsort(
            (
                key_lengths,
                query_lengths,
                length_class(key_lengths, padded=padded),
                length_class(query_lengths, padded=padded),
            )
        )
        order = _reordered_tokens(query_lengths, by_length)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        order_N, inverse_N, read_M = (
            torch.from_numpy(array).to(device) for array in (order, inverse, _reordered_tokens(key_lengths, by_length))
        )
        query_lengths, key_lengths = query_lengths[by_length], key_lengths[by_length]
        writing = query_lengths[query_lengths > 0]
        return cls(
            itself=CrossGroups.of(writing, writing, padded=padded, device=device),
            across=CrossGroups.of(query_lengths, key_lengths, padded=padded, device=device),
            order=order_N,
            inverse=inverse_N,
            read=read_M,
            longest=int(query_lengths.max(initial=0)),
        )


def _reordered_tokens(lengths: Ints, order: Ints) -> Ints:
    """The tokens of sequences that are concatenated in another order."""
    starts = np.cumsum(lengths) - lengths
    return np.repeat(starts[order], lengths[order]) + ranges(lengths[order])


@uncompiled
def attend(
    q_NHK: Tensor, kv_M2HK: Tensor, blocks: CrossGroups, mask: AttentionMask = FULL, *, dropout: float = 0.0
) -> Tensor:
    """Each query attends to the keys of its own sequence: [N, H, K] → [N, H, K]. Not compiled: shapes vary."""
    out = []
    for group, q, kv in _by_group(q_NHK, kv_M2HK, blocks):
        if not (group.query_length and group.key_length):  # no queries, or no keys
            out.append(torch.zeros_like(q))
            continue
        q_BHLK = to_block(q, group.count, group.query_length, group.queries).transpose(1, 2)
        k_BHSK, v_BHSK = to_block(kv, group.count, group.key_length, group.keys).permute(2, 0, 3, 1, 4)
        seen = mask.seen(group.query_length, q.device)  # [L, L]
        if group.keys is not None:  # [B, 1, L or 1, S]
            real_B11S = group.keys.real[:, None, None]
            seen = real_B11S if seen is None else real_B11S & seen
        y_BHLK = self_attention(
            q_BHLK, k_BHSK, v_BHSK, dropout=dropout, seen_LL=seen, bias_HLL=mask.bias_of(group.query_length), scale=1.0
        )
        out.append(to_rows(y_BHLK.transpose(1, 2), group.queries))
    return torch.cat(out) if out else torch.zeros_like(q_NHK)


def _by_group(q_NHK: Tensor, kv_M2HK: Tensor, blocks: CrossGroups) -> Iterator[tuple[CrossGroup, Tensor, Tensor]]:
    """Queries and keys of each group, flat."""
    rows = [group.rows for group in blocks.groups]
    queries, keys = q_NHK.split([count for count, _ in rows]), kv_M2HK.split([count for _, count in rows])
    return zip(blocks.groups, queries, keys, strict=True)


def cross_attention_weights(
    q_NHK: Tensor, kv_M2HK: Tensor, blocks: CrossGroups, mask: AttentionMask = FULL
) -> list[Tensor]:
    """Only the attention weights, [H, queries, keys] of each sequence in the order of the groups, for interpretation.

    Groups must be of sequences of one length.
    """
    weights: list[Tensor] = []
    for group, q, kv in _by_group(q_NHK, kv_M2HK, blocks):
        assert group.queries is None
        assert group.keys is None
        q_BHLK, k_BHLK = (x.unflatten(0, (group.count, -1)).transpose(1, 2) for x in (q, kv[:, 0]))
        q_BHLK = q_BHLK * q.shape[-1] ** 0.5  # the next line divides by it
        seen_LL = mask.seen(group.query_length, q.device) if group.query_length == group.key_length else None
        weights.extend(attention_weights(q_BHLK, k_BHLK, seen_LL=seen_LL, bias_HLL=mask.bias_of(group.query_length)))
    return weights


class CrossAttention(nn.Module):
    """Queries of one text, keys and values of another or the same; no biases, heads of any size."""

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
        """As T5's code: the standard deviation of queries replaces the division by √K."""
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

    def forward(self, x_ND: Tensor, read_MD: Tensor, blocks: CrossGroups, mask: AttentionMask = FULL) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        y_NHK = attend(self.queries(x_ND), self.keys_and_values(read_MD), blocks, mask, dropout=dropout)
        if mask.heads is not None:
            y_NHK = y_NHK * mask.heads[:, None].to(y_NHK.dtype)
        y_ND: Tensor = self.out(y_NHK.flatten(-2))
        return y_ND
