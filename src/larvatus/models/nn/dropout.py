"""Dropout (Srivastava et al. 2014): each number becomes 0 with probability p, the rest are scaled by 1 / (1 − p).

On CPU torch samples one random double per number, which costs a fifth of a training step; here one 64-bit sample
decides for four numbers (16 bits each, so p is rounded to 1/65,536). Elsewhere torch's own kernel is used, and in
compiled code a hash (`hashed_keep`). All randomness comes from torch's default generator of the device, which the
training loop seeds at every step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16
MAX_COMPILED = 1 << 31
"""Numbers that 32-bit positions can index."""
_FACTORS = (-1_640_531_527, 2_146_121_005, -2_073_254_261)
"""Odd factors that spread bits (0x9E3779B9; those of Wellons's lowbias32)."""


def keep_scale(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """0 or 1 / (1 − p) at random, for a tensor on CPU."""
    size = shape.numel()
    bits = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:size]
    dropped = round(p * _LEVELS)
    keep = bits.view(shape) >= dropped - _LEVELS // 2  # a signed 16-bit number is below this with probability p
    return keep.to(dtype).mul_(_LEVELS / (_LEVELS - dropped))


def hashed_keep(shape: torch.Size, p: float, device: torch.device) -> Tensor:
    """True where a number is kept: a hash of its position and of two random numbers, for compiled code on a GPU.

    A compiler fuses it into the surrounding kernels, and again in backward passes, so that nothing is stored; its own
    random numbers take many times as many operations.
    """
    first, second = torch.randint(-(1 << 31), (1 << 31) - 1, (2, 1), device=device, dtype=torch.int32)
    x = hash_integers(torch.arange(shape.numel(), device=device, dtype=torch.int32), first, second)
    keep: Tensor = x >= round(p * (1 << 32)) - (1 << 31)  # a signed 32-bit number is below this with probability p
    return keep.view(shape)


def hash_integers(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Hash 32-bit integers with two numbers as the seed; different integers have different hashes."""
    x = (x ^ first) * _FACTORS[0]
    x = ((x ^ _logical_shift(x, 16)) * _FACTORS[1]) ^ second
    return (x ^ _logical_shift(x, 15)) * _FACTORS[2]


def _logical_shift(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros: `>>` fills with the sign, which would give x and ~x the same hash."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


def has_dropout(module: nn.Module) -> bool:
    """Whether any part of a module drops anything in training, whatever it calls its rate.

    >>> has_dropout(nn.Sequential(Dropout(0.0))), has_dropout(nn.Sequential(Dropout(0.1)))
    (False, True)
    """
    for part in module.modules():
        shares = [value for name, value in vars(part).items() if name == "p" or "dropout" in name]
        if any(value != 0 for value in shares if isinstance(value, float | int)):
            return True
    return False


class Dropout(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type == "cpu" and self.p < 1.0:
            return x * keep_scale(x.shape, self.p, x.dtype)
        if torch.compiler.is_compiling() and x.numel() < MAX_COMPILED:
            return torch.where(hashed_keep(x.shape, self.p, x.device), x * (1 / (1 - self.p)), 0.0)
        return F.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
