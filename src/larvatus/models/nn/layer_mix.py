"""Layers for a task to read in place of the last: a learned mix of them, or one beside the other.

A learned mix (ELMo, Peters et al. 2018, eq. 1) says how much a task wants of each layer:

    v = γ Σ_l softmax(s)_l h_l            s: a score for the embeddings and for every layer, γ: a scale

Starts as the mean of all layers.

Which layers, a word says (Devlin et al. 2019, table 7, compare these):

    all         a mix of the embeddings and every layer          last4      a mix of the highest four
    0, 5, -2    one layer by number: 0 is the embeddings         concat4    the highest four side by side

    >>> read_layers("concat2", layers=6).layers
    (5, 6)
    >>> mix = LayerMix(layers=2)
    >>> mix(torch.stack([torch.zeros(4, 8), torch.ones(4, 8), torch.ones(4, 8) * 2])).shape
    torch.Size([4, 8])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.core.errors import UsageError

FORMS = "all, last4, concat4, or the number of a layer (0: the embeddings, -1: the last)"


@dataclass(frozen=True)
class LearnedMix:
    """What a task has learnt to want of each layer.

    >>> print(LearnedMix(shares=(0.2, 0.5, 0.3), scale=1.5))
    mix of layers: embeddings 0.200 · layer 1 0.500 · layer 2 0.300 (γ 1.500)
    """

    shares: tuple[float, ...]
    """softmax(s), of the lowest layer first."""
    scale: float
    """γ."""
    layers: tuple[int, ...] = ()
    """Those that are mixed, 0 for the embeddings; empty: all, from the embeddings on."""

    def __str__(self) -> str:
        layers = " · ".join(f"{name} {share:.3f}" for name, share in self.by_layer.items())
        return f"mix of layers: {layers} (γ {self.scale:.3f})"

    @property
    def by_layer(self) -> dict[str, float]:
        """By the name of the layer."""
        layers = self.layers or range(len(self.shares))
        return {
            f"layer {layer}" if layer else "embeddings": share for layer, share in zip(layers, self.shares, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        return {"shares": list(self.shares), "scale": self.scale}


class LayerMix(nn.Module):
    wide = 1
    """How many times as wide as a layer the result is."""

    def __init__(self, layers: int, read: Sequence[int] | None = None) -> None:
        super().__init__()
        self.layers = tuple(range(layers + 1) if read is None else read)
        self.scores = nn.Parameter(torch.zeros(len(self.layers)))
        self.scale = nn.Parameter(torch.ones(()))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """All layers alike; there is nothing to draw."""
        self.scores.zero_()
        self.scale.fill_(1.0)

    @property
    def learnt(self) -> LearnedMix:
        """How much it takes of each layer it reads, the lowest first; they sum to 1."""
        shares = torch.softmax(self.scores.detach().double(), 0).tolist()
        return LearnedMix(shares=tuple(shares), scale=float(self.scale.detach()), layers=self.layers)

    def forward(self, states: Tensor) -> Tensor:
        """[layers, …, D] → […, D]."""
        mixed: Tensor = self.scale * torch.tensordot(torch.softmax(self.scores, 0), states, dims=1)
        return mixed


class LayerConcat(nn.Module):
    """Layers side by side, or one of them alone; nothing is learnt here."""

    def __init__(self, read: Sequence[int]) -> None:
        super().__init__()
        self.layers = tuple(read)
        self.wide = len(self.layers)

    def forward(self, states: Tensor) -> Tensor:
        """[layers, …, D] → […, layers × D]."""
        return torch.cat(states.unbind(0), dim=-1)


def read_layers(word: bool | str, *, layers: int) -> LayerMix | LayerConcat | None:
    """What a user asked for, in a model of so many layers; None: the last layer as it is."""
    if isinstance(word, bool):
        return LayerMix(layers) if word else None
    if word == "all":
        return LayerMix(layers)
    match = re.fullmatch(r"(last|concat)([1-9]\d{0,3})|(-?\d{1,4})", word, flags=re.ASCII)
    if match is None:
        raise UsageError(f"layers = {word[:40]!r} is not known; give {FORMS}")
    if match[3] is not None:
        number = int(match[3])
        if not -layers - 1 <= number <= layers:
            raise UsageError(f"the model has {layers} layers, so there is no layer {number} to read")
        return LayerConcat([number % (layers + 1)])
    count = int(match[2])
    if count > layers:
        raise UsageError(f"the model has {layers} layers, so its last {count} cannot be read")
    top = range(layers - count + 1, layers + 1)
    return LayerMix(layers, top) if match[1] == "last" else LayerConcat(top)
