"""Attention that depends on the distance of two tokens and on whether they share a segment, in one stream or two.

    score_ij = ((q_i + u) · k_j  +  (q_i + v) · r_{i−j}  +  (q_i + w) · s_{[seg_i ≠ seg_j]}) / √K      r_d = W_r sin(d)

(Transformer-XL, Dai et al. 2019, §3.3; XLNet, Yang et al. 2019, §2.4 and 2.5.) u, v, w are learned, as are the two
vectors s of a head. Keys come from the tokens of a sequence and from the states that are remembered from before it.
Queries come from all tokens (the content stream), or from some positions only (the query stream, whose vectors do not
know the token there). The order in which tokens are predicted decides the mask:

    content   i sees j where order_j ≤ order_i          query   i sees j where order_j < order_i

Without an order, everything is seen. Remembered states are always seen, in segment 0.

`StreamLayout` is computed once per batch and shared by all layers. As in `GroupedLayout` (`layout.py`), equal sequences
form a block without padding, but here three numbers must be equal: tokens, remembered states, and queried positions. A
batch without the last two is grouped as `GroupedLayout` does it. On CUDA, sequences with similar numbers of tokens and
positions share a padded block.

    >>> streams = StreamLayout.of(torch.tensor([3, 2, 3]), places=torch.tensor([1, 2, 6]))  # 2 of the 1st, 1 of the 3rd
    >>> [(group.count, group.length, group.query_length) for group in streams.groups]
    [(1, 2, 0), (1, 3, 1), (1, 3, 2)]

N tokens, M queried positions, T remembered states, E distances, H heads, K size of a head, D = H·K hidden size; in a
group B sequences of L tokens, Q queries each and S = T + L keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.attention import attention_weights, self_attention
from larvatus.models.nn.attention.layout import Padding, length_class, padding_if_needed, to_block, to_rows
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.linear import LoRALinear, full_weight


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


# Attention.


@dataclass(frozen=True, eq=False)
class RelativeContext:
    """Input of all layers other than the tokens' vectors, in the order of the groups."""

    streams: StreamLayout
    distances_ED: Tensor  # sinusoids of the distances `longest` + remembered − 1 … −`longest`, descending
    reach: int  # the largest of them
    segments_N: Tensor
    order_N: Tensor | None = None  # when each token is predicted; None: no token is hidden from another


def sinusoids(largest: int, smallest: int, width: int, device: torch.device) -> Tensor:
    """sin and cos of the distances `largest` … `smallest` at `width` / 2 wavelengths: [E, D] (Vaswani et al. 2017)."""
    distance_E = torch.arange(largest, smallest - 1, -1, device=device, dtype=torch.float32)
    frequency = 10_000.0 ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angles = distance_E[:, None] * frequency
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class KeysAndValues(NamedTuple):
    """Keys and values of the tokens and of the memory, and the projected distances."""

    tokens_N2HK: Tensor
    memory_T2HK: Tensor | None
    distances_EHK: Tensor


class RelativeAttention(nn.Module):
    stacked: ClassVar[dict[str, int]] = {"qkv.weight": 3}
    """Parameters that stack several matrices, for optimizers that treat each separately."""

    def __init__(self, *, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.hidden, self.dropout = heads, hidden, dropout
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.distances = nn.Linear(hidden, hidden, bias=False)  # W_r
        # u, v and w: vectors, so that no optimizer decays them
        self.to_content = nn.Parameter(torch.empty(hidden))
        self.to_distance = nn.Parameter(torch.empty(hidden))
        self.to_segment = nn.Parameter(torch.empty(hidden))
        self.segments = nn.Parameter(torch.empty(2, heads, hidden // heads))  # s: of the same segment, of another

    def keys(self, kv_N: Tensor, memory_TD: Tensor | None, around: RelativeContext) -> KeysAndValues:
        """From keys and values of the tokens [N, 2D], which the projection of the queries gave too."""
        memory = None
        if memory_TD is not None:
            memory = self._split(F.linear(memory_TD, full_weight(self.qkv)[self.hidden :]), 2)
        distances_EHK = self._split(self.distances(around.distances_ED), 1)[:, 0]
        return KeysAndValues(self._split(kv_N, 2), memory, distances_EHK)

    def content(self, h_ND: Tensor, memory_TD: Tensor | None, around: RelativeContext) -> tuple[Tensor, KeysAndValues]:
        """Attention of all tokens: [N, D], and the keys and values for the query stream of the same layer."""
        qkv_N: Tensor = self.qkv(h_ND)
        keys = self.keys(qkv_N[:, self.hidden :], memory_TD, around)
        q_NHK = self._split(qkv_N[:, : self.hidden], 1)[:, 0]
        return self._mixed(self._attend(q_NHK, keys, around, queried=False)), keys

    def keys_of(self, h_ND: Tensor, memory_TD: Tensor | None, around: RelativeContext) -> KeysAndValues:
        """Keys and values without queries of the tokens themselves: in the last layer of two streams."""
        return self.keys(F.linear(h_ND, full_weight(self.qkv)[self.hidden :]), memory_TD, around)

    def query(self, g_MD: Tensor, keys: KeysAndValues, around: RelativeContext) -> Tensor:
        """Attention of the queried positions: [M, D]."""
        q_MHK = self._split(F.linear(g_MD, full_weight(self.qkv)[: self.hidden]), 1)[:, 0]
        return self._mixed(self._attend(q_MHK, keys, around, queried=True))

    def weights(self, h_ND: Tensor, around: RelativeContext) -> list[Tensor]:
        """The attention weights of all tokens, [H, L, L] for each sequence in the order of the groups.

        Groups must be of sequences of one length.
        """
        qkv_N: Tensor = self.qkv(h_ND)
        keys = self.keys(qkv_N[:, self.hidden :], None, around)
        q_NHK = self._split(qkv_N[:, : self.hidden], 1)[:, 0]
        weights: list[Tensor] = []
        for part in by_group(q_NHK, keys, around, queried=False):
            bias_BHQS = self._bias(part, keys.distances_EHK, around)
            q_BHQK = part.q_BHQK + self._vector(self.to_content)
            weights.extend(attention_weights(q_BHQK, part.k_BHSK, bias_HLL=bias_BHQS))
        return weights

    @property
    def adapted(self) -> bool:
        """Whether LoRA was added, which may drop some of its input."""
        return isinstance(self.qkv, LoRALinear)

    @uncompiled
    def _attend(self, q_QHK: Tensor, keys: KeysAndValues, around: RelativeContext, *, queried: bool) -> Tensor:
        """Group by group; shapes vary from batch to batch, so a compiled model breaks its graph here."""
        dropout = self.dropout if self.training else 0.0
        out = []
        for part in by_group(q_QHK, keys, around, queried=queried):
            bias_BHQS = self._bias(part, keys.distances_EHK, around)
            q_BHQK = part.q_BHQK + self._vector(self.to_content).to(part.q_BHQK.dtype)
            if part.seen_BQS is not None:
                # a position that sees nothing would attend to all with equal weight; it does, and its output is zeroed
                sees_BQ1 = part.seen_BQS.any(-1, keepdim=True)
                bias_BHQS = bias_BHQS.masked_fill(~(part.seen_BQS | ~sees_BQ1)[:, None], -math.inf)
            y_BHQK = self_attention(q_BHQK, part.k_BHSK, part.v_BHSK, dropout=dropout, bias_HLL=bias_BHQS)
            if part.seen_BQS is not None:
                y_BHQK = y_BHQK * sees_BQ1[:, None].to(y_BHQK.dtype)
            padding = part.group.queries if queried else part.group.tokens
            out.append(to_rows(y_BHQK.transpose(1, 2), padding))
        return torch.cat(out) if out else q_QHK

    def _mixed(self, y_QHK: Tensor) -> Tensor:
        """The heads of each query projected together: [Q, H, K] → [Q, D]."""
        mixed_QD: Tensor = self.out(y_QHK.flatten(-2))
        return mixed_QD

    def _bias(self, part: GroupInputs, distances_EHK: Tensor, around: RelativeContext) -> Tensor:
        """What distance and segment add to the scores: [B, H, Q, S]."""
        group, q = part.group, part.q_BHQK
        first = around.reach - (group.remembered + group.length - 1)
        if first < 0:
            raise UsageError(
                f"{group.remembered} states are remembered, more than the model keeps; start without memory"
            )
        r_HKE = distances_EHK[first : first + group.remembered + 2 * group.length].permute(1, 2, 0)
        far_BHQE = (q + self._vector(self.to_distance).to(q.dtype)) @ r_HKE.to(q.dtype)
        if part.places_BQ is None:
            far_BHQS = relative_shift(far_BHQE, keys=group.remembered + group.length)
        else:
            start_BQ1 = group.length - 1 - part.places_BQ[..., None]
            at_BQS = start_BQ1 + torch.arange(group.remembered + group.length, device=q.device)
            far_BHQS = far_BHQE.gather(-1, at_BQS[:, None].expand(-1, self.heads, -1, -1))
        near_BHQ2 = torch.einsum(
            "bhqk,shk->bhqs", q + self._vector(self.to_segment).to(q.dtype), self.segments.to(q.dtype)
        )
        segment_BHQS = torch.where(part.other_BQS[:, None], near_BHQ2[..., 1:], near_BHQ2[..., :1])
        return (far_BHQS + segment_BHQS) * (1 / math.sqrt(q.shape[-1]))

    def _split(self, x: Tensor, parts: int) -> Tensor:
        """[N, parts · D] → [N, parts, H, K]."""
        split: Tensor = x.unflatten(-1, (parts, self.heads, -1))
        return split

    def _vector(self, parameter: Tensor) -> Tensor:
        """[D] → [H, 1, K], to be added to queries [B, H, Q, K]."""
        return parameter.view(self.heads, 1, -1)


def relative_shift(x_BHLE: Tensor, *, keys: int) -> Tensor:
    """Scores by distance → scores by key: row i begins L − 1 − i columns later. [B, H, L, E] → [B, H, L, S]

    In a flat view, rows begin one element earlier each if they are one element shorter: no copy by index.

    >>> relative_shift(torch.tensor([[1, 0, -1, -2], [1, 0, -1, -2]]), keys=2)     # distances of 2 tokens
    tensor([[ 0, -1],
            [ 1,  0]])
    """
    rows, columns = x_BHLE.shape[-2:]
    flat = x_BHLE.flatten(-2)[..., rows - 1 : rows * columns - 1]
    shifted: Tensor = flat.unflatten(-1, (rows, columns - 1))
    return shifted[..., :keys]


@dataclass(frozen=True, eq=False)
class GroupInputs:
    """The inputs of one group."""

    group: StreamGroup
    q_BHQK: Tensor
    k_BHSK: Tensor
    v_BHSK: Tensor
    places_BQ: Tensor | None  # positions of the queries; None: every token in turn
    other_BQS: Tensor  # whether query and key are of different segments
    seen_BQS: Tensor | None  # [B, Q or 1, S]; None: everything is seen


def by_group(q_QHK: Tensor, keys: KeysAndValues, around: RelativeContext, *, queried: bool) -> Iterator[GroupInputs]:
    groups = around.streams.groups
    counts, sizes = [group.rows(queried=queried) for group in groups], [group.rows(queried=False) for group in groups]
    queries, tokens = torch.split(q_QHK, counts), torch.split(keys.tokens_N2HK, sizes)
    segments = torch.split(around.segments_N, sizes)
    orders = torch.split(around.order_N, sizes) if around.order_N is not None else None
    places = torch.split(around.streams.places, counts) if queried else None
    kept = [group.count * group.remembered for group in groups]
    memories = torch.split(keys.memory_T2HK, kept) if keys.memory_T2HK is not None else None
    for number, group in enumerate(groups):
        if counts[number] == 0:
            continue
        before = group.remembered
        kv_2BHSK = group.block(tokens[number]).permute(2, 0, 3, 1, 4)
        if memories is not None:
            past_2BHTK = memories[number].unflatten(0, (group.count, before)).permute(2, 0, 3, 1, 4)
            kv_2BHSK = torch.cat([past_2BHTK, kv_2BHSK], dim=3)
        segment_BL = group.block(segments[number])
        order_BL = group.block(orders[number]) if orders is not None else None
        places_BQ = group.block(places[number], queried=True) if places is not None else None
        yield GroupInputs(
            group=group,
            q_BHQK=group.block(queries[number], queried=queried).transpose(1, 2),
            k_BHSK=kv_2BHSK[0],
            v_BHSK=kv_2BHSK[1],
            places_BQ=places_BQ,
            other_BQS=_at(segment_BL, places_BQ)[..., None] != F.pad(segment_BL, (before, 0))[:, None],
            seen_BQS=_seen(order_BL, places_BQ, group),
        )


def _at(x_BL: Tensor, places_BQ: Tensor | None) -> Tensor:
    """Values of the tokens at the queried positions."""
    return x_BL if places_BQ is None else x_BL.gather(1, places_BQ)


def _seen(order_BL: Tensor | None, places_BQ: Tensor | None, group: StreamGroup) -> Tensor | None:
    """Which keys each query sees: [B, Q or 1, S]; None: all. A queried position does not see its own token."""
    seen_BQL = None if group.tokens is None else group.tokens.real[:, None]
    if order_BL is not None:
        of_queries = _at(order_BL, places_BQ)[..., None]
        earlier_BQL = order_BL[:, None] <= of_queries if places_BQ is None else order_BL[:, None] < of_queries
        seen_BQL = earlier_BQL if seen_BQL is None else earlier_BQL & seen_BQL
    return None if seen_BQL is None else F.pad(seen_BQL, (group.remembered, 0), value=True)
