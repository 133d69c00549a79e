"""Exact inference on linear chains of tags: forward–backward and Viterbi, over the flat batch and without padding.

Sequences are sorted by length, longest first, and their tokens laid step by step, so that the tokens of one step are a
slice and the batch shrinks as sequences end (`ChainSteps`). Forward–backward runs in both directions in the same loop:

    α_t(j) = e_t(j) + log Σ_i exp(α_{t−1}(i) + T_ij)            β_t(i) = e_t(i) + log Σ_j exp(T_ij + β_{t+1}(j))

as one product with exp(T), shifted by the largest α of the token and the largest T of the column. That loses paths
whose share is below the smallest float, which matters only where no larger one reaches a tag; where a sum comes out so
small (forbidden transitions, emissions hundreds apart), the recursion is repeated with sums of logarithms, which lose
nothing.

N tokens, B sequences, K tags. B is the batch of one step in shapes of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.core.batch import ranges


@dataclass(frozen=True, eq=False)
class ChainSteps:
    """Where the tokens of each step lie."""

    counts: tuple[int, ...]
    """Sequences that have a first, second, … token."""
    forward: Tensor
    """[N] the token of the flat batch at each place; places of one step lie together, longest sequence first."""
    backward: Tensor
    """[N] the same with all sequences read from their end."""
    place: Tensor
    """[N] place of each token of the flat batch, read forward, and below read backward."""
    place_backward: Tensor
    sequence: Tensor
    """[N] sequence of each token."""
    first: Tensor
    """[B'] first token of each sequence that has any, and below its last; in the order of the batch."""
    last: Tensor
    filled: Tensor
    """[B'] the sequences that have any token."""
    batch: int
    """All sequences, empty ones too."""

    @classmethod
    def of(cls, lengths: Tensor, device: torch.device) -> ChainSteps:
        """Reads the lengths on the host: lengths that are there already spare a wait for the device."""
        host = lengths.detach().cpu().numpy().astype(np.int64)
        starts = np.cumsum(host) - host
        order = np.argsort(-host, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        longest = int(host.max(initial=0))
        counts = len(host) - np.searchsorted(np.sort(host), np.arange(longest), side="right")
        offsets = np.cumsum(counts) - counts
        step, sequence = ranges(host), np.repeat(np.arange(len(host)), host)
        place = offsets[step] + rank[sequence]
        place_backward = offsets[host[sequence] - 1 - step] + rank[sequence]
        tokens = np.arange(len(step))
        forward, backward = np.empty_like(tokens), np.empty_like(tokens)
        forward[place], backward[place_backward] = tokens, tokens
        filled = np.flatnonzero(host)
        first, last = starts[filled], starts[filled] + host[filled] - 1

        def on_device(array: npt.NDArray[np.int64]) -> Tensor:
            return torch.from_numpy(array).to(device)

        return cls(
            counts=tuple(counts.tolist()),
            forward=on_device(forward),
            backward=on_device(backward),
            place=on_device(place),
            place_backward=on_device(place_backward),
            sequence=on_device(sequence),
            first=on_device(first),
            last=on_device(last),
            filled=on_device(filled),
            batch=len(host),
        )

    def split(self, x: Tensor, dim: int) -> list[tuple[Tensor, Tensor]]:
        """Views of x, laid step by step: for each step but the first, its sequences' tokens before, and its own."""
        parts = x.split(self.counts, dim)
        befores = (a if a.shape[dim] == b.shape[dim] else a.narrow(dim, 0, b.shape[dim]) for a, b in pairwise(parts))
        return list(zip(befores, parts[1:], strict=True))


@dataclass(frozen=True, eq=False)
class ChainSums:
    """What forward–backward leaves, by token of the flat batch."""

    alpha: Tensor
    """[N, K] α less a shift of each token's own."""
    posterior: Tensor
    """[N, K] probability of each tag at each token."""
    log_partition: Tensor
    """[B] log of the sum over all tag sequences, float64 where the device has it."""
    exact: bool
    """Whether sums of logarithms were needed."""


def forward_backward(
    e_NK: Tensor,
    transitions_KK: Tensor,
    start_K: Tensor,
    end_K: Tensor,
    *,
    steps: ChainSteps,
    reachable_2K: Tensor | None,
) -> ChainSums:
    """−inf in `transitions_KK`, `start_K`, `end_K` forbids; `reachable_2K`: tags that forbidding leaves any way to,
    from the start and from the end. Some sequence of every length must be allowed."""
    if not steps.counts:
        return ChainSums(e_NK, e_NK, e_NK.new_zeros(steps.batch), exact=False)
    both_2NK = torch.stack([e_NK.index_select(0, steps.forward), e_NK.index_select(0, steps.backward)])
    both_2NK[:, : steps.counts[0]] += torch.stack([start_K, end_K])[:, None]
    t_2KK = torch.stack([transitions_KK, transitions_KK.mT])
    sums_2NK, shift_N, smallest = _products(both_2NK, t_2KK, steps, reachable_2K)
    limits = torch.finfo(e_NK.dtype)
    exact = smallest < math.log(limits.tiny / limits.eps)
    if exact:
        sums_2NK, shift_N = _logarithms(both_2NK, t_2KK, steps)
    alpha_NK = sums_2NK[0].index_select(0, steps.place)
    beta_NK = sums_2NK[1].index_select(0, steps.place_backward)
    posterior_NK = torch.softmax(alpha_NK + beta_NK - e_NK, dim=-1)
    wide = wide_float(e_NK)
    log_partition = torch.zeros(steps.batch, dtype=wide, device=e_NK.device)
    log_partition.index_add_(0, steps.sequence, shift_N.index_select(0, steps.place).to(wide))
    log_partition[steps.filled] += torch.logsumexp(alpha_NK[steps.last] + end_K, dim=-1).to(wide)
    return ChainSums(alpha_NK, posterior_NK, log_partition, exact)


def wide_float(x: Tensor) -> torch.dtype:
    """For sums over hundreds of steps."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def _products(
    e_2NK: Tensor, t_2KK: Tensor, steps: ChainSteps, reachable_2K: Tensor | None
) -> tuple[Tensor, Tensor, float]:
    """Both recursions by products with exp(T): α and β, the shifts of α, and the logarithm of the smallest sum."""
    largest_2K = t_2KK.amax(1, keepdim=True)
    largest_2K = torch.where(largest_2K.isneginf(), 0.0, largest_2K)  # a tag that nothing may precede
    exp_2KK = torch.exp(t_2KK - largest_2K)
    first = steps.counts[0]
    e_2NK = torch.cat([e_2NK[:, :first], e_2NK[:, first:] + largest_2K], dim=1)
    out_2NK, shifts = e_2NK.clone(), [e_2NK.new_zeros(first, 1)]
    for before_2BK, here_2BK in steps.split(out_2NK, 1):
        shift = before_2BK.amax(-1, keepdim=True)
        shifts.append(shift[0])
        here_2BK.add_(torch.bmm((before_2BK - shift).exp_(), exp_2KK).log_())
    sums_2NK = (out_2NK - e_2NK)[:, first:]
    if reachable_2K is not None:
        sums_2NK = torch.where(reachable_2K[:, None], sums_2NK, 0.0)
    return out_2NK, torch.cat(shifts).squeeze(-1), float(sums_2NK.amin()) if sums_2NK.numel() else 0.0


def _logarithms(e_2NK: Tensor, t_2KK: Tensor, steps: ChainSteps) -> tuple[Tensor, Tensor]:
    """The same by log Σ exp, with a shift for each pair of token and tag."""
    out_2NK, shifts = e_2NK.clone(), [e_2NK.new_zeros(steps.counts[0], 1)]
    for before_2BK, here_2BK in steps.split(out_2NK, 1):
        shift = before_2BK.amax(-1, keepdim=True)
        shifts.append(shift[0])
        here_2BK.add_(torch.logsumexp((before_2BK - shift)[..., None] + t_2KK[:, None], dim=2))
    return out_2NK, torch.cat(shifts).squeeze(-1)


def pair_posteriors(sums: ChainSums, transitions_KK: Tensor, weight_N: Tensor, *, steps: ChainSteps) -> Tensor:
    """[K, K] Σ over neighbours of weight · p(tag of the left, tag of the right), with the weight of the right one.

    p(i, j) = p(j) p(i | j), and p(i | j) is the softmax of α(i) + T_ij over i.
    """
    right = torch.ones(len(weight_N), dtype=torch.bool, device=weight_N.device)
    right[steps.first] = False
    right = right.nonzero().squeeze(-1)
    mass_PK = (sums.posterior * weight_N[:, None]).index_select(0, right)
    alpha_PK = sums.alpha.index_select(0, right - 1)
    if sums.exact:
        score_PKK = alpha_PK[:, :, None] + transitions_KK
        share_PKK = torch.softmax(score_PKK, dim=1).nan_to_num_(0.0)  # nothing leads to a tag: nothing to share
        return (share_PKK * mass_PK[:, None]).sum(0)
    largest_K = transitions_KK.amax(0)
    exp_KK = torch.exp(transitions_KK - torch.where(largest_K.isneginf(), 0.0, largest_K))
    left_PK = torch.exp(alpha_PK - alpha_PK.amax(-1, keepdim=True))
    sums_PK = left_PK @ exp_KK
    return exp_KK * (left_PK.mT @ torch.where(sums_PK > 0, mass_PK / sums_PK, 0.0))


def best_path(e_NK: Tensor, transitions_KK: Tensor, start_K: Tensor, end_K: Tensor, *, steps: ChainSteps) -> Tensor:
    """[N] tags of the best sequence (Viterbi); of equally good ones that with the lower tags, from its end.

    No back-pointers are kept: the best tag before a known one is found again on the way back, for one tag, not for K.
    """
    if not steps.counts:
        return torch.zeros(0, dtype=torch.int64, device=e_NK.device)
    out_KN = e_NK.index_select(0, steps.forward).mT.contiguous()  # maxima over the first axis are the quickest
    out_KN[:, : steps.counts[0]] += start_K[:, None]
    for before_KB, here_KB in steps.split(out_KN, 1):
        here_KB.add_((before_KB[:, None] + transitions_KK[..., None]).amax(0))
    out_NK, back_KK = out_KN.mT.contiguous(), transitions_KK.mT.contiguous()
    tags = torch.empty(len(e_NK), dtype=torch.int64, device=e_NK.device)
    place_last = steps.place.index_select(0, steps.last)
    tags[place_last] = (out_NK.index_select(0, place_last) + end_K).argmax(-1)
    walk = zip(steps.split(out_NK, 0), steps.split(tags, 0), strict=True)
    for (before_BK, _), (before, here) in reversed(list(walk)):
        before.copy_((before_BK + back_KK.index_select(0, here)).argmax(-1))
    return tags.index_select(0, steps.place)
