"""The block of XLNet (Yang et al. 2019, §2.3) and the segment memory of Transformer-XL (Dai et al. 2019, §3.2).

    content   h ← norm(h + attention(q of h, keys and values of h)),   then h ← norm(h + feedforward(h))
    query     g ← norm(g + attention(q of g, keys and values of h)),   then g ← norm(g + feedforward(g))

Both streams use the same weights, and the same keys and values, which are computed once. States of a segment are kept
and read by the next segment:

    segment 1   states of every layer → the last `keep` of each sequence, without gradient
    segment 2   its tokens attend to them as well, in every layer to those of the layer below

Sequence b of a batch continues sequence b of the previous batch. Nothing is padded: sequences may remember different
numbers of states. A sequence can also be cut into two segments itself (`SequenceHalves`): then the second remembers the
first, whatever the order of sequences. N tokens, M queried positions, T remembered states, B sequences, D hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.models.nn.attention.relative_attention import RelativeAttention, RelativeContext
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionSettings
from larvatus.models.nn.feedforward import Activation, FeedForward


class XLNetBlock(nn.Module):
    def __init__(
        self, config: AttentionSettings, *, activation: Activation, norm_epsilon: float, dropout: float
    ) -> None:
        super().__init__()
        self.attention = RelativeAttention(hidden=config.hidden, heads=config.heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(config.hidden, eps=norm_epsilon)
        self.feedforward = FeedForward(hidden=config.hidden, inner=config.inner, activation=activation)
        self.feedforward_norm = nn.LayerNorm(config.hidden, eps=norm_epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, h_ND: Tensor, memory_TD: Tensor | None, around: RelativeContext) -> Tensor:
        """Only the content stream."""
        mixed_ND, _ = self.attention.content(h_ND, memory_TD, around)
        return self._rest(h_ND, mixed_ND)

    def both(
        self, h_ND: Tensor, g_MD: Tensor, memory_TD: Tensor | None, around: RelativeContext
    ) -> tuple[Tensor, Tensor]:
        """Both streams: content, queries."""
        mixed_ND, keys = self.attention.content(h_ND, memory_TD, around)
        return self._rest(h_ND, mixed_ND), self._rest(g_MD, self.attention.query(g_MD, keys, around))

    def query(self, h_ND: Tensor, g_MD: Tensor, memory_TD: Tensor | None, around: RelativeContext) -> Tensor:
        """Only the query stream: no layer above reads the content, so only keys and values are needed."""
        keys = self.attention.keys_of(h_ND, memory_TD, around)
        return self._rest(g_MD, self.attention.query(g_MD, keys, around))

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Everything after attention, for either stream."""
        y = self.attention_norm(x + self.dropout(mixed))
        inner = self.dropout(self.feedforward.activation(self.feedforward.up(y)))
        z: Tensor = self.feedforward_norm(y + self.dropout(self.feedforward.down(inner)))
        return z


@dataclass(frozen=True, eq=False)
class SegmentMemory:
    states: tuple[Tensor, ...]
    """The input of each layer: [T, D], sequences concatenated as in the batch."""
    lengths: Tensor
    """[B] states of each sequence."""

    @classmethod
    @uncompiled
    def of(
        cls, read: Sequence[Tensor], lengths: Tensor, *, keep: int, before: SegmentMemory | None = None
    ) -> SegmentMemory:
        """The last `keep` states of each sequence, including those remembered `before`. `read` [N, D] of each layer."""
        length_B = lengths.detach().cpu().numpy()
        past_B = np.zeros_like(length_B) if before is None else before.lengths.detach().cpu().numpy()
        kept_B = np.minimum(past_B + length_B, keep)
        # counted from the oldest state of each sequence
        at_T = ranges(kept_B) + np.repeat(past_B + length_B - kept_B, kept_B)
        past_T = np.repeat(past_B, kept_B)
        old_T = np.repeat(edges(past_B)[:-1], kept_B) + at_T
        new_T = int(past_B.sum()) + np.repeat(edges(length_B)[:-1], kept_B) + at_T - past_T
        rows_T = torch.from_numpy(np.where(at_T < past_T, old_T, new_T)).to(lengths.device)
        states = [x if before is None else torch.cat([before.states[n].to(x.dtype), x]) for n, x in enumerate(read)]
        return cls(
            states=tuple(x.detach().index_select(0, rows_T) for x in states),
            lengths=torch.from_numpy(kept_B).to(lengths.device),
        )


@dataclass(frozen=True, eq=False)
class SequenceHalf:
    tokens: TokenBatch[Tensor]
    order: Tensor  # of its tokens
    places: Tensor  # in this half, ascending


@dataclass(frozen=True, eq=False)
class SequenceHalves:
    """The sequences of a batch cut in the middle."""

    first: SequenceHalf
    second: SequenceHalf
    back: Tensor
    """[M] the index of each prediction of the batch among those of the first half, then the second."""

    @classmethod
    @uncompiled
    def of(cls, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor) -> SequenceHalves:
        device = batch.lengths.device
        length_B, places = batch.lengths.cpu().numpy(), places_M.cpu().numpy()
        cut_B = length_B // 2
        early_N = ranges(length_B) < np.repeat(cut_B, length_B)
        early_M = early_N[places]
        number_N = np.where(early_N, np.cumsum(early_N), np.cumsum(~early_N)) - 1  # in its own half
        halves = []
        for chosen_N, chosen_M, lengths in ((early_N, early_M, cut_B), (~early_N, ~early_M, length_B - cut_B)):
            rows = torch.from_numpy(np.flatnonzero(chosen_N)).to(device)
            tokens = dataclasses.replace(
                batch,
                ids=batch.ids[rows],
                lengths=torch.from_numpy(lengths).to(device),
                positions=batch.positions[rows],
                segments=batch.segments[rows],
                words=batch.words[rows],
            )
            predicted = torch.from_numpy(number_N[places[chosen_M]]).to(device)
            halves.append(SequenceHalf(tokens, order_N[rows], predicted))
        back = np.where(early_M, np.cumsum(early_M), early_M.sum() + np.cumsum(~early_M)) - 1
        return cls(halves[0], halves[1], torch.from_numpy(back).to(device))
