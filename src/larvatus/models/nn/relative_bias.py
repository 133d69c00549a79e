"""Relative position buckets (Raffel et al. 2020, *T5*, §2.1; MPNet, Song et al. 2020): a bias for each distance.

    score_ij = q_i · k_j / √K + bias[bucket(j − i)]        one number a head, shared by all layers

Near distances have a bucket each, farther ones share wider and wider ones (by the logarithm), and all from
`distance` on share the last. Seen from both sides, half of the buckets are for tokens behind and half for those ahead.
H heads, L tokens of a sequence.

    >>> bucket(torch.tensor([-200, -9, -1, 0, 1, 9, 200]), buckets=32, distance=128).tolist()
    [15, 8, 1, 0, 17, 24, 31]
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def bucket(offsets: Tensor, *, buckets: int, distance: int, bidirectional: bool = True) -> Tensor:
    """The bucket of each offset j − i of a key from its query; one-sided, all that is ahead is at distance 0."""
    half = buckets // 2 if bidirectional else buckets
    ahead = (offsets > 0).long() * half if bidirectional else torch.zeros_like(offsets)
    far = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    exact = half // 2
    # in float32, as released models have it: at a power of two the logarithm decides by its last digit
    wide = torch.log(far.clamp(min=1).float() / exact) / math.log(distance / exact) * (half - exact)
    return ahead + torch.where(far < exact, far, (exact + wide.long()).clamp(max=half - 1))


class RelativeBias(nn.Embedding):
    """What is learnt: [buckets, H]."""

    def __init__(self, *, buckets: int, distance: int, heads: int, bidirectional: bool = True) -> None:
        super().__init__(buckets, heads)
        self.distance = distance
        self.bidirectional = bidirectional

    def table(self, length: int) -> Tensor:
        """The bias of every pair of a sequence, [H, L, L]; that of a shorter one is its corner."""
        ahead = torch.arange(1 - length, length, device=self.weight.device)
        buckets_of_offsets = bucket(
            ahead, buckets=self.num_embeddings, distance=self.distance, bidirectional=self.bidirectional
        )  # 2L − 1 offsets are all there are
        places_L = torch.arange(length, device=self.weight.device)
        offsets_LL = places_L[None, :] - places_L[:, None] + length - 1
        bias_LLH: Tensor = self(buckets_of_offsets)[offsets_LL]
        return bias_LLH.permute(2, 0, 1)
