"""A learned mix of all layers (ELMo, Peters et al. 2018, eq. 1): how much a task wants of each.

    v = γ Σ_l softmax(s)_l h_l            s: a score for the embeddings and for every layer, γ: a scale

Starts as the mean of all layers.

    >>> mix = LayerMix(layers=2)
    >>> mix(torch.stack([torch.zeros(4, 8), torch.ones(4, 8), torch.ones(4, 8) * 2])).shape
    torch.Size([4, 8])
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerMix(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers + 1))
        self.scale = nn.Parameter(torch.ones(()))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """All layers alike; there is nothing to draw."""
        self.scores.zero_()
        self.scale.fill_(1.0)

    def forward(self, states: Tensor) -> Tensor:
        """[layers + 1, …, D] → […, D]."""
        mixed: Tensor = self.scale * torch.tensordot(torch.softmax(self.scores, 0), states, dims=1)
        return mixed
