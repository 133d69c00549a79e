"""Which layers a vector is made of: one, a mix, or all of them.

    last         the top layer
    last4        mean of the top four (any number: last2, last6); last4-sum their sum
    7            one layer by number: 0 is the embeddings, -1 the top
    0.1,0.2,0.7  a weighted mix: one weight for the embeddings and for each layer, used as given
    all          every layer by itself, the embeddings first: a stack [layers + 1, units, D]

(Devlin et al. 2019, §5.3, compare such mixes for tagging; the chapter, §11.3, takes the top four's mean.)

    >>> LayerMix.read("last2", layers=6).weights
    ((5, 0.5), (6, 0.5))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Range, short_repr

Layers = str | int | Sequence[float]

WEIGHTS = Range(-1e6, 1e6)
_TOP = re.compile(r"last(\d+)?(-sum)?")
_KINDS = "last, last4, last4-sum, all, a layer's number, or one weight for each layer"


@dataclass(frozen=True)
class LayerMix:
    weights: tuple[tuple[int, float], ...]
    """(layer, weight) of each layer that counts, lowest first; layer 0 is the embeddings."""
    stacked: bool = False
    """Whether layers are kept apart rather than added."""

    @property
    def layers(self) -> list[int]:
        """Those that count, lowest first."""
        return [layer for layer, _ in self.weights]

    def mix(self, states: Sequence[Tensor]) -> Tensor:
        """From the states of `layers`, [N, D] each: [N, D], or [layers, N, D] if stacked."""
        if self.stacked:
            return torch.stack([state.float() for state in states])
        first, weight = states[0].float(), self.weights[0][1]
        mixed = first if weight == 1.0 else first * weight
        for state, (_, weight) in zip(states[1:], self.weights[1:], strict=True):
            mixed = mixed.add(state.float(), alpha=weight)
        return mixed

    @classmethod
    def read(cls, asked: Layers, *, layers: int) -> LayerMix:
        """What a user writes, for a model of so many layers."""
        if isinstance(asked, str):
            asked = asked.strip()
            if asked == "all":
                return cls(tuple((layer, 1.0) for layer in range(layers + 1)), stacked=True)
            top = _TOP.fullmatch(asked)
            if top:
                return cls(_top(_whole(top[1] or "1", asked), layers, total=bool(top[2])))
            return cls.read(_numbers(asked), layers=layers)
        if isinstance(asked, bool) or not isinstance(asked, int | Sequence):
            raise UsageError(f"layers = {short_repr(asked)} names no layers; say {_KINDS}")
        if isinstance(asked, int):
            if not -layers - 1 <= asked <= layers:
                raise UsageError(
                    f"there is no layer {short_repr(asked)}: the model has 1 to {layers}, and 0 for its embeddings"
                )
            return cls(((asked % (layers + 1), 1.0),))
        return cls(_weighted([*asked], layers))


def _top(count: int, layers: int, *, total: bool) -> tuple[tuple[int, float], ...]:
    if not 1 <= count <= layers:
        raise UsageError(
            f"last{short_repr(count)} is not to be had: the model has {layers} layers; say last1 to last{layers}"
        )
    weight = 1.0 if total else 1.0 / count
    return tuple((layer, weight) for layer in range(layers - count + 1, layers + 1))


def _numbers(asked: str) -> int | list[float]:
    if "," not in asked:
        return _whole(asked, asked)
    try:
        return [float(part) for part in asked.split(",")]
    except ValueError as fault:
        raise UsageError(f"layers = {short_repr(asked)} names no layers; say {_KINDS}") from fault


def _whole(digits: str, asked: str) -> int:
    try:
        return int(digits)
    except ValueError as fault:
        raise UsageError(f"layers = {short_repr(asked)} names no layers; say {_KINDS}") from fault


def _weighted(weights: list[float], layers: int) -> tuple[tuple[int, float], ...]:
    if len(weights) != layers + 1:
        raise UsageError(
            f"{len(weights)} layer weights, but {layers + 1} are wanted: one for the embeddings, "
            f"then one for each of {layers} layers"
        )
    for weight in weights:
        WEIGHTS.check(weight, "layers: a weight")
    kept = tuple((layer, float(weight)) for layer, weight in enumerate(weights) if weight)
    if not kept:
        raise UsageError("all layer weights are 0; give at least one that is not")
    return kept
