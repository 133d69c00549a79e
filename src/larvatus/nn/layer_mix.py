"""A learned mix of all layers (ELMo, Peters et al. 2018, eq. 1): how much a task wants of each.

    v = γ Σ_l softmax(s)_l h_l            s: a score for the embeddings and for every layer, γ: a scale

Starts as the mean of all layers.

    >>> mix = LayerMix(layers=2)
    >>> mix(torch.stack([torch.zeros(4, 8), torch.ones(4, 8), torch.ones(4, 8) * 2])).shape
    torch.Size([4, 8])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LearntMix:
    """What a task has learnt to want of each layer.

    >>> print(LearntMix(shares=(0.2, 0.5, 0.3), scale=1.5))
    mix of layers: embeddings 0.200 · layer 1 0.500 · layer 2 0.300 (γ 1.500)
    """

    shares: tuple[float, ...]
    """softmax(s), of the embeddings first."""
    scale: float
    """γ."""

    def __str__(self) -> str:
        layers = " · ".join(f"{name} {share:.3f}" for name, share in self.by_layer.items())
        return f"mix of layers: {layers} (γ {self.scale:.3f})"

    @property
    def by_layer(self) -> dict[str, float]:
        """By the name of the layer."""
        return {f"layer {layer}" if layer else "embeddings": share for layer, share in enumerate(self.shares)}

    def to_dict(self) -> dict[str, Any]:
        return {"shares": list(self.shares), "scale": self.scale}


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

    @property
    def learnt(self) -> LearntMix:
        shares = torch.softmax(self.scores.detach().double(), 0).tolist()
        return LearntMix(shares=tuple(shares), scale=float(self.scale.detach()))

    def forward(self, states: Tensor) -> Tensor:
        """[layers + 1, …, D] → […, D]."""
        mixed: Tensor = self.scale * torch.tensordot(torch.softmax(self.scores, 0), states, dims=1)
        return mixed
