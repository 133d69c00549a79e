"""Standardisation (chapter eq. 11.10 to 11.12; Timkey & van Schijndel 2021): every dimension gets mean 0, deviation 1.

    μ = 1/|C| Σ x        σ = √(1/|C| Σ (x − μ)²)        z = (x − μ) / σ

A few *rogue* dimensions with large means make all words look alike to the cosine; z-scores remove that. μ and σ are
fitted once on a corpus (`standardise_fit.py`), saved in the model's directory under a name, and used by that name:

    larvatus isotropy fit --model runs/mine --corpus text/ --name default    # runs/mine/standardise/default.safetensors
    model.embed(texts, unit="word", layers="last4", standardise="default")

One fit serves every layer and every mix: with the covariance between layers kept for each dimension, a mix Σ w_l x_l
has mean Σ w_l μ_l and variance wᵀ C w. (The maximum over subwords is not a sum: there, a fit serves single layers.) A
dimension that never varied in the corpus is centred and not scaled.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.arrays import Doubles
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.settings import Settings
from larvatus.inference.vectors.layers import LayerWeights, Pool, Unit
from larvatus.models.bundle.named_tensors import SUFFIX, NamedTensors
from larvatus.models.bundle.weights import read_tensors
from larvatus.models.loaded import LoadedModel


class RunningMoments:
    """Mean and covariance of vectors in one streaming pass, in float64 (Welford 1962; Chan, Golub & LeVeque 1983).

    moments = RunningMoments()
    for x_LND in blocks:              # L layers of N units
        moments.add(x_LND)
    moments.mean, moments.variance    # [L, D], as one pass over all units at once would give

    Each block is centred before its squares are summed, and blocks are joined by the distance of their means. (E[x²] −
    E[x]² subtracts two nearly equal numbers: on a rogue dimension, whose mean is large, it loses every digit or turns
    negative.) All layers of a unit are added together, so covariances *between* layers are kept too, and with them the
    variance of any mix of layers.
    """

    def __init__(self) -> None:
        self.count = 0
        self.skipped = 0
        """Units skipped because they have no vector (NaN)."""
        self.mean: Doubles = np.empty((0, 0))
        """[L, D]"""
        self._products: Doubles = np.empty((0, 0, 0))
        """[D, L, L] sums of (x_l − μ_l)(x_m − μ_m)."""

    def add(self, x_LND: npt.NDArray[Any]) -> None:
        """Add the vectors of N units; a unit with a number that is not finite is skipped and counted."""
        sound = np.isfinite(x_LND).all(axis=(0, 2))
        self.skipped += int((~sound).sum())
        x = x_LND[:, sound].astype(np.float64)
        if not x.shape[1]:
            return
        mean = x.mean(axis=1)
        centred_DLN = (x - mean[:, None]).transpose(2, 0, 1)
        self._join(x.shape[1], mean, centred_DLN @ centred_DLN.transpose(0, 2, 1))

    def merge(self, other: RunningMoments) -> None:
        """Add the moments of another pass."""
        self.skipped += other.skipped
        if other.count:
            self._join(other.count, other.mean, other._products)

    def _join(self, count: int, mean: Doubles, products: Doubles) -> None:
        if not self.count:
            self.count, self.mean, self._products = count, mean.copy(), products.copy()
            return
        total = self.count + count
        apart_DL = (mean - self.mean).T
        outer = apart_DL[:, :, None] * apart_DL[:, None, :]
        self._products = self._products + products + outer * (self.count * count / total)
        self.mean = self.mean + apart_DL.T * (count / total)
        self.count = total

    @property
    def covariance(self) -> Doubles:
        """[D, L, L] of each dimension, between layers (divided by the count, as in eq. 11.11)."""
        return self._products / self.count

    @property
    def variance(self) -> Doubles:
        """[L, D]"""
        return np.diagonal(self.covariance, axis1=1, axis2=2).T


STANDARDISERS = NamedTensors(folder="standardise", what="standardiser", make="larvatus isotropy fit")
CONSTANT = 1e-6
"""A deviation below this share of the mean is rounding: the dimension never varied."""


class StandardiserDescription(Settings):
    """Metadata of a standardiser: what it was fitted for, and on."""

    format: int = 1
    unit: str
    pool: str
    count: int
    """Units of the corpus, |C|."""
    model: str
    """Fingerprint of weights, settings and vocabulary."""
    corpus: str
    """Name of the corpus."""
    sha256: str
    """Checksum of mean and covariance."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Mean and covariance of every dimension of every layer of a model; `larvatus isotropy fit` fits one on a corpus.

    Example:
        >>> z = Standardiser.load(directory / "standardise" / "z.safetensors")
        >>> z.unit, z.mean.shape
        ('word', (3, 16))
        >>> model.embed("the river", unit="word", standardise=z).shape
        (2, 16)
    """

    name: str
    unit: Unit
    """Unit it was fitted on: words (also for spans), tokens or sentences."""
    pool: Pool
    """Pooling of subwords."""
    count: int
    """Number of units."""
    model: str
    """Fingerprint of the model."""
    corpus: str
    """Name of the corpus."""
    mean: Doubles = field(repr=False)
    """[layers + 1, D]"""
    covariance: Doubles = field(repr=False)
    """[D, layers + 1, layers + 1]"""

    @classmethod
    def of(cls, moments: RunningMoments, *, name: str, unit: Unit, pool: Pool, model: str, corpus: str) -> Standardiser:
        """A standardiser from moments of a corpus.

        Args:
            moments: Mean and covariance.
            name: Its name.
            unit: Unit of the vectors.
            pool: Pooling of subwords.
            model: The model's fingerprint.
            corpus: Name of the corpus.

        Returns:
            The standardiser; fewer than two units are refused.
        """
        if moments.count < 2:
            raise DataError(f"{corpus}: {moments.count} {unit}s with a vector, and 2 are needed; name more text")
        return cls(name, unit, pool, moments.count, model, corpus, moments.mean, moments.covariance)

    @property
    def checksum(self) -> str:
        """Checksum of the numbers that it computes with."""
        digest = hashlib.sha256(repr((self.mean.shape, self.unit, self.pool, self.model)).encode())
        digest.update(np.ascontiguousarray(self.mean).tobytes())
        digest.update(np.ascontiguousarray(self.covariance).tobytes())
        return digest.hexdigest()

    def moments(self, mix: LayerWeights) -> tuple[Doubles, Doubles]:
        """Mean and standard deviation of a layer or a mix of layers.

        Args:
            mix: The layers and their weights.

        Returns:
            μ and σ, [D] each; for a stack of layers, [layers + 1, 1, D]. σ is 1 where it was 0.
        """
        layers = [layer for layer, _ in mix.weights]
        if mix.stacked:
            mean = self.mean[layers]
            variance = np.diagonal(self.covariance, axis1=1, axis2=2).T[layers]
            return mean[:, None], _scale(mean, variance)[:, None]
        if self.pool == "max" and len(layers) > 1:
            raise UsageError(
                f"standardiser {self.name} was fitted for maxima over subwords, and the maximum of a mix of layers is "
                "not the mix of their maxima; name one layer, or pool by mean"
            )
        weights = np.array([weight for _, weight in mix.weights])
        mean = weights @ self.mean[layers]
        chosen = self.covariance[:, layers][:, :, layers]  # [D, l, l]
        return mean, _scale(mean, np.einsum("l,dlm,m->d", weights, chosen, weights))

    def apply(self, x: Tensor, mix: LayerWeights) -> Tensor:
        """z = (x − μ)/σ.

        Args:
            x: Vectors [U, D], or a stack of layers [layers + 1, U, D].
            mix: The layers of the vectors.

        Returns:
            The z-scores, of the same shape.
        """
        if self.mean.shape[1] != x.shape[-1] or self.mean.shape[0] <= mix.layers[-1]:
            layers, size = self.mean.shape
            raise ArtefactError(
                f"standardiser {self.name} was fitted for {layers - 1} layers of {size} numbers, and the vectors have "
                f"{x.shape[-1]}; fit one for this model: larvatus isotropy fit"
            )
        mean, scale = (torch.from_numpy(array).to(x) for array in self.moments(mix))
        return (x - mean) / scale

    def check(self, unit: Unit, pool: Pool) -> None:
        """Refuse units or pooling that it was not fitted for. A fit on words serves marked spans too.

        Args:
            unit: Unit that gets a vector.
            pool: Pooling of subwords.
        """
        same = unit == self.unit or (unit, self.unit) == ("span", "word")
        if not same or (pool != self.pool and unit != "token"):
            fitted = "word" if unit == "span" else unit
            raise UsageError(
                f"standardiser {self.name} was fitted for {self.unit}s pooled by {self.pool}, not for {unit}s by "
                f"{pool}; use the same, or fit one: larvatus isotropy fit --unit {fitted} --pool {pool} --name …"
            )

    def check_model(self, fingerprint: str, path: Path) -> None:
        """Refuse a model that it was not fitted for.

        Args:
            fingerprint: `Model.fingerprint`.
            path: Directory of the model, for the message.
        """
        STANDARDISERS.check_model(self.name, self.model, fingerprint=fingerprint, path=path)

    def save(self, path: Path) -> None:
        """Write one file, which appears complete or not at all.

        Args:
            path: A new file, `….safetensors`; `Model.embed` finds by name those in `standardise/` of the model.
        """
        tensors = {"mean": torch.from_numpy(self.mean), "covariance": torch.from_numpy(self.covariance)}
        described = StandardiserDescription(
            unit=self.unit,
            pool=self.pool,
            count=self.count,
            model=self.model,
            corpus=files.as_text(self.corpus),
            sha256=self.checksum,
        )
        STANDARDISERS.save(path, tensors, described)

    @classmethod
    def load(cls, path: Path) -> Standardiser:
        """Read a file that `save` wrote; one that was changed since is refused.

        Args:
            path: The file.

        Returns:
            The standardiser.
        """
        tensors = {name: tensor.double().numpy() for name, tensor in read_tensors(path).items()}
        described = STANDARDISERS.description(path, StandardiserDescription)
        try:
            standardiser: Any = cls(
                path.name.removesuffix(SUFFIX),
                described.unit,  # type: ignore[arg-type]
                described.pool,  # type: ignore[arg-type]
                described.count,
                described.model,
                described.corpus,
                tensors["mean"],
                tensors["covariance"],
            )
        except KeyError as fault:
            raise ArtefactError(f"{path} holds no {fault.args[0]}: it is not a standardiser; fit it again") from fault
        layers, size = standardiser.mean.shape if standardiser.mean.ndim == 2 else (0, 0)
        if not layers or standardiser.covariance.shape != (size, layers, layers):
            raise ArtefactError(f"{path}: its mean and covariance do not fit each other: it is not a standardiser")
        STANDARDISERS.check_sum(path, stored=described.sha256, computed=standardiser.checksum)
        result: Standardiser = standardiser
        return result


def standardiser_path(directory: Path, name: str) -> Path:
    """Path of a named standardiser in a model directory; a name that ends in .safetensors is a path itself."""
    return STANDARDISERS.path(directory, name)


def find_standardiser(directory: Path, name: str) -> Standardiser:
    """The standardiser of a model by name, or from a file."""
    return Standardiser.load(STANDARDISERS.find(directory, name))


def standardiser_for(model: LoadedModel, given: str | Standardiser | None) -> Standardiser | None:
    """A standardiser by name, or as given, that was fitted for this model; one of another model is refused."""
    standardiser = find_standardiser(model.bundle.path, given) if isinstance(given, str) else given
    if standardiser is not None:
        standardiser.check_model(model.fingerprint, model.bundle.path)
    return standardiser


def _scale(mean: Doubles, variance: Doubles) -> Doubles:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return np.where(deviation > CONSTANT * np.abs(mean), deviation, 1.0)
