"""Rotary positions (Su et al. 2021, *RoFormer*): queries and keys are turned by an angle that grows with the place.

    θ_j = base^(−2j/K)      j = 0 … K/2 − 1, a speed for each pair of numbers
    x′_j       = x_j cos(p θ_j) − x_{j+K/2} sin(p θ_j)          for a token at place p of its sequence
    x′_{j+K/2} = x_{j+K/2} cos(p θ_j) + x_j sin(p θ_j)

A turned query times a turned key depends on the distance of their places alone. Pairs are (j, j + K/2), as in released
models. There is nothing to learn and nothing to save.
N tokens, H heads, K size of a head.

    >>> places = rotation(torch.tensor([0, 1]), size=2, base=10_000.0)
    >>> [round(x, 3) for x in rotate(torch.ones(2, 3, 1, 2), places)[1, 0, 0].tolist()]  # cos 1 − sin 1, cos 1 + sin 1
    [-0.301, 1.382]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rotation:
    """The angles of every token of the flat batch, worked out once and shared by all layers of one base."""

    cos: Tensor  # [N, 1, 1, K/2]
    sin: Tensor


def rotation(positions_N: Tensor, *, size: int, base: float, dtype: torch.dtype = torch.float32) -> Rotation:
    """The angles of tokens at these places, for heads of `size` numbers; in float32 or better."""
    wide = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(0, size, 2, dtype=wide, device=positions_N.device)
    angles_NK = positions_N.to(wide)[:, None] * base ** (-pairs / size)
    angles_N11K = angles_NK[:, None, None, :]
    return Rotation(cos=angles_N11K.cos(), sin=angles_N11K.sin())


def rotate(qkv_N3HK: Tensor, by: Rotation) -> Tensor:
    """Queries and keys turned, values as they are."""
    first, second = qkv_N3HK[:, :2].chunk(2, dim=-1)
    turned = torch.cat([first * by.cos - second * by.sin, second * by.cos + first * by.sin], dim=-1)
    return torch.cat([turned.to(qkv_N3HK.dtype), qkv_N3HK[:, 2:]], dim=1)
