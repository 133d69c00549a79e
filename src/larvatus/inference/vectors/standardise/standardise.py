"""Standardisation (chapter eq. 11.10 to 11.12; Timkey & van Schijndel 2021): each dimension with mean 0 and spread 1.

    μ = 1/|C| Σ x        σ = √(1/|C| Σ (x − μ)²)        z = (x − μ) / σ

A few *rogue* dimensions with large means make all words look alike to the cosine; z-scores take that away. μ and σ are
fitted once over a corpus (`fit.py`), saved in the model's directory under a name, and used by that name:

    larvatus isotropy fit --model runs/mine --corpus text/ --name default    # runs/mine/standardise/default.safetensors
    model.embed(texts, unit="word", layers="last4", standardise="default")

One fit serves every layer and every mix: with the covariance between layers kept for each dimension, a mix Σ w_l x_l
has mean Σ w_l μ_l and variance wᵀ C w. (But for the maximum over subwords, which is no sum: there it serves single
layers.) A dimension that never varied in the corpus is centred and not scaled.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.arrays import Doubles
from larvatus.core.errors import ArtefactError, DataError, UsageError, did_you_mean
from larvatus.core.outputs import new_output
from larvatus.core.regular_files import follow_link, is_there, refuse_link
from larvatus.core.settings import Settings
from larvatus.inference.vectors.layers import LayerMix
from larvatus.inference.vectors.standardise.moments import RunningMoments
from larvatus.inference.vectors.units import Pool, Unit
from larvatus.models.bundle.weights import read_tensors, stored_bytes, write_tensors

FOLDER = "standardise"
SUFFIX = ".safetensors"
CONSTANT = 1e-6
"""A spread below this share of the mean is rounding: the dimension never varied."""
_NAME = re.compile(r"\w[\w.-]*")


class Description(Settings):
    """What a standardiser was fitted for, and on."""

    format: int = 1
    unit: str
    pool: str
    count: int
    """Units of the corpus, |C|."""
    model: str
    """Fingerprint of weights, settings and vocabulary."""
    corpus: str
    """The text as it was named."""
    sha256: str
    """Of mean and covariance."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Mean and spread of every dimension of every layer of a model; `larvatus isotropy fit` fits one on a corpus.

    Example:
        >>> z = Standardiser.load(directory / "standardise" / "z.safetensors")
        >>> z.unit, z.mean.shape
        ('word', (3, 16))
        >>> model.embed("the river", unit="word", standardise=z).shape
        (2, 16)
    """

    name: str
    unit: Unit
    """What it was fitted on: words (which serve for spans, too), tokens or sentences."""
    pool: Pool
    """How their subwords were pooled."""
    count: int
    """How many there were."""
    model: str
    """Fingerprint of the model."""
    corpus: str
    """The text as it was named."""
    mean: Doubles = field(repr=False)
    """[layers + 1, D]"""
    covariance: Doubles = field(repr=False)
    """[D, layers + 1, layers + 1]"""

    @classmethod
    def of(cls, moments: RunningMoments, *, name: str, unit: Unit, pool: Pool, model: str, corpus: str) -> Standardiser:
        """From moments that were gathered over a corpus.

        Args:
            moments: Mean and covariance.
            name: What it is called.
            unit: What got a vector.
            pool: How subwords were pooled.
            model: The model's fingerprint.
            corpus: The text as it was named.

        Returns:
            The standardiser; fewer than two units are refused.
        """
        if moments.count < 2:
            raise DataError(f"{corpus}: {moments.count} {unit}s with a vector, and 2 are wanted; name more text")
        return cls(name, unit, pool, moments.count, model, corpus, moments.mean, moments.covariance)

    @property
    def checksum(self) -> str:
        """Of what it computes with."""
        digest = hashlib.sha256(repr((self.mean.shape, self.unit, self.pool, self.model)).encode())
        digest.update(np.ascontiguousarray(self.mean).tobytes())
        digest.update(np.ascontiguousarray(self.covariance).tobytes())
        return digest.hexdigest()

    def moments(self, mix: LayerMix) -> tuple[Doubles, Doubles]:
        """Mean and spread of a layer or a mix of layers.

        Args:
            mix: The layers and their weights.

        Returns:
            μ and σ, [D] each; of a stack of layers, [layers + 1, 1, D]. σ is 1 where it was 0.
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

    def apply(self, x: Tensor, mix: LayerMix) -> Tensor:
        """z = (x − μ)/σ.

        Args:
            x: Vectors [U, D], or a stack of layers [layers + 1, U, D].
            mix: The layers that they come from.

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
        """Refuse what it was not fitted for. What is fitted on words serves marked spans too.

        Args:
            unit: What gets a vector.
            pool: How subwords are pooled.
        """
        same = unit == self.unit or (unit, self.unit) == ("span", "word")
        if not same or (pool != self.pool and unit != "token"):
            fitted = "word" if unit == "span" else unit
            raise UsageError(
                f"standardiser {self.name} was fitted for {self.unit}s pooled by {self.pool}, not for {unit}s by "
                f"{pool}; use the same, or fit one: larvatus isotropy fit --unit {fitted} --pool {pool} --name …"
            )

    def check_model(self, fingerprint: str, path: Path) -> None:
        """Refuse another model than the one that it was fitted for.

        Args:
            fingerprint: The model's, `Model.fingerprint`.
            path: Where the model stands, for the message.
        """
        if fingerprint != self.model:
            raise ArtefactError(
                f"standardiser {self.name} was fitted for another model than {path} (or for its weights before they "
                f"changed); fit it again: larvatus isotropy fit --model {path} --name …"
            )

    def save(self, path: Path) -> None:
        """One file, which appears whole or not at all.

        Args:
            path: A new file, `….safetensors`; `Model.embed` finds by name those in `standardise/` of the model.
        """
        tensors = {"mean": torch.from_numpy(self.mean), "covariance": torch.from_numpy(self.covariance)}
        described = Description(
            unit=self.unit,
            pool=self.pool,
            count=self.count,
            model=self.model,
            corpus=files.as_text(self.corpus),
            sha256=self.checksum,
        )
        metadata = {"larvatus": msgspec.json.encode(described).decode()}
        with files.saying_what_is_full(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with new_output(path, stored_bytes(tensors)) as aside:
            write_tensors(aside, tensors, metadata)

    @classmethod
    def load(cls, path: Path) -> Standardiser:
        """Read a file that `save` wrote; one that was changed since is refused.

        Args:
            path: The file.

        Returns:
            The standardiser.
        """
        tensors = {name: tensor.double().numpy() for name, tensor in read_tensors(path).items()}
        described = _description(path)
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
            raise ArtefactError(f"{path} holds no {fault.args[0]}: it is no standardiser; fit it again") from fault
        layers, size = standardiser.mean.shape if standardiser.mean.ndim == 2 else (0, 0)
        if not layers or standardiser.covariance.shape != (size, layers, layers):
            raise ArtefactError(f"{path}: its mean and covariance do not fit each other: it is no standardiser")
        if standardiser.checksum != described.sha256:
            raise ArtefactError(
                f"{path} does not match its checksum (wanted {described.sha256[:8]}…, got "
                f"{standardiser.checksum[:8]}…); fit it again: larvatus isotropy fit"
            )
        result: Standardiser = standardiser
        return result


def standardiser_path(directory: Path, name: str) -> Path:
    """Where a model keeps the standardiser of a name; what ends in .safetensors is a file of its own."""
    if name.endswith(SUFFIX):
        return Path(name)
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a standardiser; use letters, digits, dots and hyphens")
    refuse_link(directory / FOLDER)
    return directory / FOLDER / (name + SUFFIX)


def find_standardiser(directory: Path, name: str) -> Standardiser:
    """The standardiser of a model by its name, or of a file."""
    path = standardiser_path(directory, name)
    if name.endswith(SUFFIX):
        path = follow_link(path)
    if is_there(path):
        return Standardiser.load(path)
    if name.endswith(SUFFIX):
        raise ArtefactError(f"{path} does not exist; fit it: larvatus isotropy fit --model {directory} --out {path}")
    known = sorted(file.name.removesuffix(SUFFIX) for file in (directory / FOLDER).glob("*" + SUFFIX))
    raise ArtefactError(
        f"{directory} has no standardiser {name!r}{did_you_mean(name, known)}; "
        f"fit one: larvatus isotropy fit --model {directory} --corpus TEXT --name {name}"
    )


def _scale(mean: Doubles, variance: Doubles) -> Doubles:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return np.where(deviation > CONSTANT * np.abs(mean), deviation, 1.0)


def _description(path: Path) -> Description:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
        value = json.loads(metadata["larvatus"])
        if isinstance(value, dict) and value.get("format") != 1:
            raise ArtefactError(f"{path} has format {value.get('format')!r}, and this Larvatus reads 1; fit it again")
        return msgspec.convert(value, Description)
    except (KeyError, ValueError, safetensors.SafetensorError) as fault:
        raise ArtefactError(f"{path} is no standardiser of Larvatus; fit it again: larvatus isotropy fit") from fault
