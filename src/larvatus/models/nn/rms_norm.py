"""RMSNorm (Zhang & Sennrich 2019): x / √(mean(x²) + ε) · g. It subtracts no mean and adds no bias.

>>> RMSNorm(2, eps=0.0)(torch.tensor([[2.0, -2.0]])).tolist()
[[1.0, -1.0]]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, size: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """All ones."""
        self.weight.fill_(1.0)

    def forward(self, x_ND: Tensor) -> Tensor:
        """The mean of squares is computed in float32, or wider, whatever the precision in force."""
        wide = x_ND.to(torch.promote_types(x_ND.dtype, torch.float32))
        y_ND: Tensor = self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps))
        return y_ND
