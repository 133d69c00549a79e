"""Frozen vectors of all units in all layers, read in one pass of the encoder.

    vectors = read_vectors(model.encoder, model.tokenizer, data, layers=(), memory=4.0)
    vectors.array                                # [L, U, D] float32
    random_encoder(model, seed=0)                # the same architecture with initial weights

The vector of a unit is the mean of its tokens. A text longer than the model's window is read in several windows that
overlap. Features of an example are its vector; of a pair, [a; b; a⊙b] (Liu et al. 2019, *Linguistic knowledge and
transferability of contextual representations*). Each dimension is standardised by the training examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import DataError, NumericsError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.probing.examples import ProbeData
from larvatus.inference.model import Model
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.static import TokenTable

TEXTS = 256
"""Texts between two reports of progress."""


@dataclass(frozen=True, eq=False)
class UnitVectors:
    array: Floats
    """[L, U, D]"""
    layers: tuple[int, ...]
    """Numbers of the layers; 0 is the embeddings."""
    long: int
    """Texts that were read in several windows."""

    @property
    def missing(self) -> np.ndarray:
        """[U] units without a token."""
        return np.asarray(np.isnan(self.array[:, :, 0]).all(0))


def check_layers(encoder: Encoder, layers: Sequence[int]) -> tuple[int, ...]:
    """The layers to probe; all for none."""
    if isinstance(encoder, TokenTable):
        raise UsageError("a static model has no layers to probe; use an encoder")
    chosen = [LayerWeights.read(layer, layers=encoder.depth).layers[0] for layer in layers]
    return tuple(sorted(set(chosen))) or tuple(range(encoder.depth + 1))


def read_vectors(
    encoder: Encoder,
    tokenizer: Tokenizer,
    data: ProbeData,
    *,
    layers: tuple[int, ...],
    memory: float,
    progress: Callable[[int], None] = lambda done: None,
) -> UnitVectors:
    """Vectors of the units of all texts; refused before anything is read if they take more than `memory` GiB."""
    total = sum(map(len, data.spans))
    size = len(layers) * total * encoder.width * 4 / 2**30
    if size > memory:
        raise UsageError(
            f"vectors of {total:,} units in {len(layers)} layers take {size:.1f} GiB, over the bound of {memory:g}; "
            "use fewer texts (--limit), fewer --layers, or more --memory"
        )
    array = np.empty((len(layers), total, encoder.width), np.float32)
    options, first, long = EmbedOptions(unit="span", layers="all"), 0, 0
    for start in range(0, len(data.texts), TEXTS):
        texts, spans = data.texts[start : start + TEXTS], data.spans[start : start + TEXTS]
        for vectors in embed_texts(encoder, tokenizer, texts, options, spans=spans):
            last = first + vectors.vectors.shape[1]
            array[:, first:last] = vectors.vectors[list(layers)]
            first, long = last, long + (vectors.windows > 1)
        progress(len(texts))
    return UnitVectors(_finite(array, layers), layers, long)


def _finite(array: Floats, layers: tuple[int, ...]) -> Floats:
    """Refuse vectors that are NaN or infinite; a unit without a token is NaN in all layers."""
    for number, layer in enumerate(layers):
        broken = ~np.isfinite(array[number]).all(1)
        if (broken & ~np.isnan(array[:, :, 0]).all(0)).any() or broken.all():
            raise NumericsError(f"layer {layer} gives vectors that are not finite; check the weights of the model")
    return array


def random_encoder(model: Model, seed: int) -> Encoder:
    """An encoder of the same shape with the initial weights of a pretraining run."""
    network = Network.build(model.bundle.model, [], model.tokenizer.size, seed)
    return network.encoder.to(model.device).eval()


def features(vectors: Floats, units: Ints) -> Tensor:
    """Features of examples in some layers: [G, N, D] of single units, [G, N, 3D] of pairs."""
    z = torch.from_numpy(vectors)
    first = z[:, torch.from_numpy(units[:, 0])]
    if units.shape[1] == 1:
        return first
    second = z[:, torch.from_numpy(units[:, 1])]
    return torch.cat([first, second, first * second], -1)


@dataclass(frozen=True, eq=False)
class Scaler:
    """Mean and deviation of each dimension; a scaled vector has a 1 at its end, for the bias."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, x_GNF: Tensor) -> Scaler:
        if x_GNF.shape[1] < 2:
            raise DataError("a probe needs two training examples or more; give more texts")
        deviation = x_GNF.std(1, keepdim=True)
        return cls(x_GNF.mean(1, keepdim=True), torch.where(deviation > 1e-6, deviation, 1.0))

    def __call__(self, x_GNF: Tensor) -> Tensor:
        out = torch.ones(*x_GNF.shape[:2], x_GNF.shape[2] + 1)
        torch.sub(x_GNF, self.mean, out=out[..., :-1]).div_(self.deviation)
        return out
