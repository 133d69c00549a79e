"""Rotary positions (Su et al. 2021, *RoFormer*): queries and keys are rotated by an angle that grows with the position.

    θ_j = base^(−2j/K)      j = 0 … K/2 − 1, a speed for each pair of numbers
    x′_j       = x_j cos(p θ_j) − x_{j+K/2} sin(p θ_j)          for a token at position p of its sequence
    x′_{j+K/2} = x_{j+K/2} cos(p θ_j) + x_j sin(p θ_j)

The product of a rotated query and a rotated key depends only on their distance. Pairs are (j, j + K/2), as in released
models. There is nothing to learn and nothing to save. N tokens, H heads, K size of a head.

    >>> places = rotation(torch.tensor([0, 1]), size=2, base=10_000.0)
    >>> [round(x, 3) for x in rotate(torch.ones(2, 3, 1, 2), places)[1, 0, 0].tolist()]  # cos 1 − sin 1, cos 1 + sin 1
    [-0.301, 1.382]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor


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
