"""Dropout (Srivastava et al. 2014): each number becomes 0 with probability p, the rest grow by 1 / (1 − p).

On CPU torch draws one random double per number, one after another, which costs a fifth of a training step; here one
64-bit draw decides for four numbers (16 bits each, so p is rounded to 1/65,536). Elsewhere torch's own kernel is used.
Either way the draws come from torch's default generator of the device, which the training loop seeds at every step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16


def keep_scale(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """0 or 1 / (1 − p) at random, for a tensor on CPU."""
    size = shape.numel()
    bits = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:size]
    dropped = round(p * _LEVELS)
    keep = bits.view(shape) >= dropped - _LEVELS // 2  # a signed 16-bit number is below this with probability p
    return keep.to(dtype).mul_(_LEVELS / (_LEVELS - dropped))


def draws(module: nn.Module) -> bool:
    """Whether anything is dropped while a module trains: any of its parts has a share above 0, whatever it calls it.

    >>> draws(nn.Sequential(Dropout(0.0))), draws(nn.Sequential(Dropout(0.1)))
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
        return F.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
