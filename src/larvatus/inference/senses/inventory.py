"""A sense inventory: the vector of each tagged sense, with its count, in a directory.

    senses = SenseInventory.load("runs/senses")
    senses.vectors[senses.row("bank%1:17:01::")], senses.counts[…]

    senses.safetensors   vectors [S, D] and counts [S] of the senses; mean [D] and deviation [D] over all tagged words
    senses.json          the keys, and the options, model and WordNet of the vectors
    larvatus.json        checksums of both

The vectors are plain means. Standardisation (eq. 11.12) is affine, so the mean of standardised vectors is the
standardised mean: the user of an inventory can choose whether to apply it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from larvatus.core import files
from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.settings import Settings
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.layers import Layers
from larvatus.inference.vectors.pooling import EmbedOptions, Pool
from larvatus.models.bundle.manifest import read_manifest, verify, write_manifest
from larvatus.models.bundle.weights import read_tensors, write_tensors

LEAST = 1e-5
"""A dimension whose deviation is a smaller share of the largest one is ignored."""
_TENSORS, _SETTINGS = "senses.safetensors", "senses.json"


class InventoryOrigin(Settings):
    """How the vectors were computed; the vectors of words to tag must be computed the same way."""

    model: str
    """Fingerprint of the model."""
    name: str
    """Name of the model, for messages."""
    wordnet: str
    """Fingerprint of the WordNet of the keys."""
    layers: Layers
    pool: Pool
    instances: int
    """Tagged words that were read."""
    sentences: int
    unknown: int
    """Tags that were skipped because WordNet does not have their key."""

    @property
    def options(self) -> EmbedOptions:
        return EmbedOptions(unit="span", layers=self.layers, pool=self.pool)


class _Settings(Settings):
    origin: InventoryOrigin
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SenseInventory:
    origin: InventoryOrigin
    keys: tuple[str, ...]
    """The S senses, in order of their keys."""
    vectors: Floats
    """[S, D] v_s, the mean over the words tagged s (eq. 11.8)."""
    counts: Ints
    """[S] number of words of each mean."""
    mean: Floats
    """[D] mean of all tagged words (eq. 11.10) …"""
    deviation: Floats
    """[D] … and their standard deviation (eq. 11.11)."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def rows(self) -> dict[str, int]:
        return {key: row for row, key in enumerate(self.keys)}

    def row(self, key: str) -> int | None:
        """Row of a sense; None if no word was tagged with it."""
        return self.rows.get(key)

    def count(self, key: str) -> int:
        row = self.row(key)
        return 0 if row is None else int(self.counts[row])

    def check(self, wordnet: WordNet) -> None:
        """Refuse a WordNet that lacks keys of this inventory."""
        if wordnet.fingerprint == self.origin.wordnet:
            return
        lacking = [key for key in self.keys if key not in wordnet]
        if lacking:
            raise DataError(
                f"{len(lacking):,} of the {len(self):,} senses are not in {wordnet.folder} ({', '.join(lacking[:3])}): "
                "they were built with another WordNet; name that one with --wordnet, or build the senses again"
            )

    def check_model(self, fingerprint: str, name: str) -> None:
        """Refuse a model whose vectors cannot be compared with these."""
        if fingerprint != self.origin.model:
            raise ArtefactError(
                f"the senses were built with {self.origin.name}, and {name} is another model: their vectors cannot be "
                "compared; use the model they were built with, or build them again: larvatus senses build"
            )

    def save(self, directory: Path) -> None:
        """Write the directory, complete or not at all."""
        if os.path.lexists(directory):
            raise ArtefactError(f"{directory} is there already; remove it, or choose another --out")
        tensors = {
            "vectors": torch.from_numpy(self.vectors),
            "counts": torch.from_numpy(self.counts),
            "mean": torch.from_numpy(self.mean),
            "deviation": torch.from_numpy(self.deviation),
        }
        settings: dict[str, Any] = msgspec.to_builtins(_Settings(origin=self.origin, keys=self.keys))
        with files.new_directory(directory) as aside:
            write_tensors(aside / _TENSORS, tensors)
            files.write_json(aside / _SETTINGS, settings)
            write_manifest(aside, [_TENSORS, _SETTINGS], recipe=None, lineage={"kind": "senses"})

    @classmethod
    def load(cls, directory: str | Path) -> SenseInventory:
        path = Path(directory)
        manifest = read_manifest(path)
        if manifest is None or manifest.lineage.get("kind") != "senses":
            raise ArtefactError(f"{path} holds no sense vectors; make some: larvatus senses build --out {path}")
        verify(path, manifest, required=[_TENSORS, _SETTINGS])
        try:
            settings = msgspec.convert(files.read_json(path / _SETTINGS), _Settings)
        except msgspec.ValidationError as fault:
            raise ArtefactError(
                f"{path / _SETTINGS} was written by another version of Larvatus: {fault}; build the senses again"
            ) from fault
        tensors = read_tensors(path / _TENSORS, integers=True)
        size = int(tensors["vectors"].shape[-1]) if "vectors" in tensors and tensors["vectors"].ndim else 0
        wanted = {
            "vectors": ((len(settings.keys), size), torch.float32),
            "counts": ((len(settings.keys),), torch.int64),
            "mean": ((size,), torch.float32),
            "deviation": ((size,), torch.float32),
        }
        shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        if shapes != wanted or len({*settings.keys}) < len(settings.keys):
            raise ArtefactError(f"{path / _TENSORS} does not fit the keys of {_SETTINGS}; build the senses again")
        return cls(
            origin=settings.origin, keys=settings.keys, **{name: tensor.numpy() for name, tensor in tensors.items()}
        )


def standardised(vectors: Floats, mean: Floats, deviation: Floats) -> Floats:
    """z = (x - μ) / σ of each dimension (eq. 11.12); a dimension that varies only by rounding becomes 0."""
    scale = np.where(deviation > LEAST * deviation.max(), deviation, np.inf)
    result: Floats = ((vectors - mean) / scale).astype(np.float32)
    return result
