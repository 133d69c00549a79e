"""Units, pooling, and the layers of a vector: one, a mix, or all of them.

    last         the top layer
    last4        mean of the top four (any number: last2, last6); last4-sum their sum
    7            one layer by number: 0 is the embeddings, -1 the top
    0.1,0.2,0.7  a weighted mix: one weight for the embeddings and for each layer, used as given
    all          every layer by itself, the embeddings first: a stack [layers + 1, units, D]

(Devlin et al. 2019, §5.3, compare such mixes for tagging; the chapter, §11.3, takes the top four's mean.)

    >>> LayerWeights.read("last2", layers=6).weights
    ((5, 0.5), (6, 0.5))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Range, short_repr

Unit = Literal["token", "word", "span", "sentence", "document"]
Pool = Literal["mean", "sum", "max", "first", "last", "cls"]

PARTS = ("token", "word", "span")
"""Units of which a text has several; the others are the whole text."""


Layers = str | int | Sequence[float]

WEIGHTS = Range(-1e6, 1e6)
_TOP = re.compile(r"last(\d+)?(-sum)?")
_KINDS = "last, last4, last4-sum, all, a layer's number, or one weight for each layer"


def layers_name(layers: Layers) -> str:
    """Layers as a command line writes them: ``last``, ``7``, ``0.5,0.5,0``."""
    return str(layers) if isinstance(layers, str | int) else ",".join(f"{weight:g}" for weight in layers)


def layers_label(name: str) -> str:
    """Layers in words: ``last layer``, ``layer 7``, ``layers last4``."""
    return "last layer" if name == "last" else f"layer {name}" if name.isdecimal() else f"layers {name}"


@dataclass(frozen=True)
class LayerWeights:
    weights: tuple[tuple[int, float], ...]
    """(layer, weight) of each layer with a weight, lowest first; layer 0 is the embeddings."""
    stacked: bool = False
    """Whether layers are stacked instead of summed."""

    @property
    def layers(self) -> list[int]:
        """Layers with a weight, lowest first."""
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
    def read(cls, given: Layers, *, layers: int) -> LayerWeights:
        """Parse the option `layers` for a model with this many layers."""
        if isinstance(given, str):
            given = given.strip()
            if given == "all":
                return cls(tuple((layer, 1.0) for layer in range(layers + 1)), stacked=True)
            top = _TOP.fullmatch(given)
            if top:
                return cls(_top(_whole(top[1] or "1", given), layers, total=bool(top[2])))
            return cls.read(_numbers(given), layers=layers)
        if isinstance(given, bool) or not isinstance(given, int | Sequence):
            raise UsageError(f"layers = {short_repr(given)} names no layers; use {_KINDS}")
        if isinstance(given, int):
            if not -layers - 1 <= given <= layers:
                raise UsageError(
                    f"there is no layer {short_repr(given)}: the model has 1 to {layers}, and 0 for its embeddings"
                )
            return cls(((given % (layers + 1), 1.0),))
        return cls(_weighted([*given], layers))


def _top(count: int, layers: int, *, total: bool) -> tuple[tuple[int, float], ...]:
    if not 1 <= count <= layers:
        raise UsageError(
            f"last{short_repr(count)} does not exist: the model has {layers} layers; use last1 to last{layers}"
        )
    weight = 1.0 if total else 1.0 / count
    return tuple((layer, weight) for layer in range(layers - count + 1, layers + 1))


def _numbers(given: str) -> int | list[float]:
    if "," not in given:
        return _whole(given, given)
    try:
        return [float(part) for part in given.split(",")]
    except ValueError as fault:
        raise UsageError(f"layers = {short_repr(given)} names no layers; use {_KINDS}") from fault


def _whole(digits: str, given: str) -> int:
    try:
        return int(digits)
    except ValueError as fault:
        raise UsageError(f"layers = {short_repr(given)} names no layers; use {_KINDS}") from fault


def _weighted(weights: list[float], layers: int) -> tuple[tuple[int, float], ...]:
    if len(weights) != layers + 1:
        raise UsageError(
            f"{len(weights)} layer weights, but {layers + 1} are needed: one for the embeddings, "
            f"then one for each of {layers} layers"
        )
    for weight in weights:
        WEIGHTS.check(weight, "layers: a weight")
    kept = tuple((layer, float(weight)) for layer, weight in enumerate(weights) if weight)
    if not kept:
        raise UsageError("all layer weights are 0; give at least one that is not")
    return kept
