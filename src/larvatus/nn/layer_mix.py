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

import torch
from torch import Tensor, nn

from larvatus.errors import UsageError

FORMS = "all, last4, concat4, or the number of a layer (0: the embeddings, -1: the last)"


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
    def shares(self) -> tuple[float, ...]:
        """How much it takes of each layer, the lowest first; they sum to 1."""
        return tuple(torch.softmax(self.scores.detach().float(), 0).tolist())

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
