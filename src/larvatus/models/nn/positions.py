"""Positions inside attention: rotated queries and keys, and learned biases of distances.

Rotary positions (Su et al. 2021, *RoFormer*): queries and keys are rotated by an angle that grows with the position.

    θ_j = base^(−2j/K)      j = 0 … K/2 − 1, a speed for each pair of numbers
    x′_j       = x_j cos(p θ_j) − x_{j+K/2} sin(p θ_j)          for a token at position p of its sequence
    x′_{j+K/2} = x_{j+K/2} cos(p θ_j) + x_j sin(p θ_j)

The product of a rotated query and a rotated key depends only on their distance. Pairs are (j, j + K/2), as in released
models. There is nothing to learn and nothing to save.

    >>> places = rotation(torch.tensor([0, 1]), size=2, base=10_000.0)
    >>> [round(x, 3) for x in rotate(torch.ones(2, 3, 1, 2), places)[1, 0, 0].tolist()]  # cos 1 − sin 1, cos 1 + sin 1
    [-0.301, 1.382]

Relative position buckets (Raffel et al. 2020, *T5*, §2.1; MPNet, Song et al. 2020): a bias for each distance.

    score_ij = q_i · k_j / √K + bias[bucket(j − i)]        one number a head, shared by all layers

Near distances have a bucket each, farther ones share wider and wider ones (logarithmically), and all from `distance` on
share the last. If bidirectional, half of the buckets are for tokens behind and half for those ahead.

    >>> bucket(torch.tensor([-200, -9, -1, 0, 1, 9, 200]), buckets=32, distance=128).tolist()
    [15, 8, 1, 0, 17, 24, 31]

N tokens, H heads, K size of a head, L tokens of a sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Rotation:
    """The angles of every token of the flat batch, computed once and shared by all layers with one base."""

    cos: Tensor  # [N, 1, 1, K/2]
    sin: Tensor


def rotation(positions_N: Tensor, *, size: int, base: float, dtype: torch.dtype = torch.float32) -> Rotation:
    """The angles of tokens at these positions, for heads of `size` numbers; in float32 or better."""
    wide = torch.promote_types(dtype, torch.float32)
    made = _kept_angles if positions_N.is_cuda and torch.compiler.is_compiling() else _angles
    cos_NK, sin_NK = made(positions_N, size, base, wide)
    return Rotation(cos=cos_NK[:, None, None, :], sin=sin_NK[:, None, None, :])


def _angles(positions_N: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    pairs = torch.arange(0, size, 2, dtype=dtype, device=positions_N.device)
    angles_NK = positions_N.to(dtype)[:, None] * base ** (-pairs / size)
    return angles_NK.cos(), angles_NK.sin()


@torch.library.custom_op("larvatus::angles", mutates_args=())
def _kept_angles(positions_N: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same, as an operation that the compiler does not trace: it would recompute every angle in each layer and for
    each number of a head, which took a quarter of a step of a small encoder.
    """
    return _angles(positions_N, size, base, dtype)


@_kept_angles.register_fake
def _(positions_N: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = len(positions_N), size // 2
    return positions_N.new_empty(shape, dtype=dtype), positions_N.new_empty(shape, dtype=dtype)


def rotate(qkv_N3HK: Tensor, by: Rotation) -> Tensor:
    """Queries and keys rotated, values unchanged."""
    if torch.is_grad_enabled() and qkv_N3HK.requires_grad:
        return cast(Tensor, _Turn.apply(qkv_N3HK, by.cos, by.sin))  # type: ignore[no-untyped-call]
    return _turned(qkv_N3HK, by.cos, by.sin)


def _turned(qkv_N3HK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = qkv_N3HK[:, :2].chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.to(qkv_N3HK.dtype), qkv_N3HK[:, 2:]], dim=1)


class _Turn(torch.autograd.Function):
    """Its gradient is the inverse rotation, written out because autograd would take three passes."""

    @staticmethod
    def forward(ctx: Any, qkv_N3HK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(qkv_N3HK, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, -sin), None, None


def bucket(offsets: Tensor, *, buckets: int, distance: int, bidirectional: bool = True) -> Tensor:
    """The bucket of each offset j − i of a key from its query; one-sided, everything ahead is at distance 0."""
    half = buckets // 2 if bidirectional else buckets
    ahead = (offsets > 0).long() * half if bidirectional else torch.zeros_like(offsets)
    far = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    exact = half // 2
    # in float32, as in released models: at a power of two the last digit of the logarithm decides
    wide = torch.log(far.clamp(min=1).float() / exact) / math.log(distance / exact) * (half - exact)
    return ahead + torch.where(far < exact, far, (exact + wide.long()).clamp(max=half - 1))


class RelativeBias(nn.Embedding):
    """The learned biases: [buckets, H]."""

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
