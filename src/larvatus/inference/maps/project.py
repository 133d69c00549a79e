"""Projection of vectors into the plane: UMAP (McInnes et al. 2018), or two principal components without UMAP.

    flat = project(vectors, method="auto", seed=0)
    flat.points, flat.method, flat.note             # [N, 2], 'umap', or 'pca' and why

UMAP keeps neighbours together, by cosine; distances between groups mean little. Principal components keep the
directions of largest variance. The same vectors and seed give the same points.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError, UsageError

Method = Literal["auto", "umap", "pca"]

FEWEST = 3
"""Least points of a map."""
FEWEST_FOR_UMAP = 10
"""With fewer points its graph of neighbours is meaningless and its first layout cannot be computed."""
NEIGHBOURS = 15


@dataclass(frozen=True, eq=False)
class Projection:
    points: Doubles
    """[N, 2]"""
    method: Literal["umap", "pca"]
    note: str = ""
    """Why another method was used than the preferred one."""


def has_umap() -> bool:
    return find_spec("umap") is not None


def project(vectors: npt.NDArray[np.float32], *, method: Method = "auto", seed: int = 0) -> Projection:
    """[N, D] → [N, 2]."""
    count = len(vectors)
    if count < FEWEST:
        raise DataError(f"a map needs at least {FEWEST} instances, and there {_are(count)}; give more text")
    if method == "pca":
        return Projection(principal_components(vectors, 2), "pca")
    if not has_umap():
        if method == "umap":
            raise UsageError('UMAP is not installed; pip install "larvatus[maps]", or use --method pca')
        return Projection(
            principal_components(vectors, 2), "pca", 'UMAP is not installed (pip install "larvatus[maps]")'
        )
    if count < FEWEST_FOR_UMAP:
        if method == "umap":
            raise DataError(
                f"UMAP needs at least {FEWEST_FOR_UMAP} instances, and there {_are(count)}; give more text, or use "
                "--method pca"
            )
        note = f"UMAP needs at least {FEWEST_FOR_UMAP} instances, and there {_are(count)}"
        return Projection(principal_components(vectors, 2), "pca", note)
    return Projection(_umap(vectors, seed), "umap")


def _are(count: int) -> str:
    return {0: "is none", 1: "is 1"}.get(count, f"are {count}")


def _umap(vectors: npt.NDArray[np.float32], seed: int) -> Doubles:
    with warnings.catch_warnings():  # warnings of its dependencies, of threads, and of disconnected parts
        warnings.simplefilter("ignore")
        from umap import UMAP

        flat = UMAP(
            n_components=2,
            n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
            min_dist=0.1,
            metric="cosine",
            random_state=seed,
            n_jobs=1,  # a seed implies it
        ).fit_transform(vectors)
    points: Doubles = np.asarray(flat, dtype=np.float64)
    return np.where(np.isfinite(points), points, 0.0)  # points without neighbours get no position


def principal_components(vectors: npt.NDArray[np.floating], count: int) -> Doubles:
    """The first principal components of rows, [N, D] → [N, count]; each one's largest loading is positive."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)  # D × D, whatever the number of rows; ascending
    axes = axes[:, ::-1][:, :count]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    flat: Doubles = centred @ axes
    return np.pad(flat, ((0, 0), (0, count - flat.shape[1])))
