"""Vectors of a new vocabulary's tokens from those of the old one: each is a weighted sum of old vectors.

    rows = focus(vectors, shared, fallback=parts)                # a `RowTransfer`
    rows.apply(old_VD, name="encoder.embeddings.words.weight", seed=0)      # [V, D] of the new vocabulary

    copy      tokens of both vocabularies are copied, all others random
    mean      others are the mean of the old tokens that their text is cut into
    focus     others are means of copied tokens, weighted by the similarity of static vectors (`static_vectors.py`) that
              are learned on the new text: w = sparsemax(cos(v, V_shared))    FOCUS, Dobler & de Melo 2023, eq. 2 and 3
    wechsel   others are means of the ten old tokens whose static vectors, learned on old text and aligned by a
              dictionary, are nearest: w = softmax(cos / 0.1)                WECHSEL, Minixhofer et al. 2022, section 3
    random    all are random, except special tokens: the control

Where `focus` and `wechsel` have no vector for a token, its mean is taken; where that has no old token, it is random.
The same weights apply to every parameter with a row for each token: input and output embeddings, the bias of the head.

V tokens of the new vocabulary, N weights, D dimensions, A shared tokens (anchors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.rng import derive
from larvatus.models.bundle.weights import read_tensors, write_tensors

Initialise = Literal["focus", "wechsel", "mean", "copy", "random"]
NEIGHBOURS, TEMPERATURE = 10, 0.1
"""Old tokens of a mixture, and the temperature of their weights, in WECHSEL."""
AT_ONCE = 512
"""Tokens whose similarities are computed together."""
Mixtures = dict[int, tuple[Ints, Doubles]]
"""For new tokens, old ids with their weights."""


@dataclass(frozen=True, eq=False)
class RowTransfer:
    """For each new token, its old tokens and their weights, end to end; a token without any is random."""

    starts: Ints
    """[V + 1] where the weights of each token begin."""
    ids: Ints
    """[N] old ids."""
    weights: Doubles
    """[N] weights."""

    @classmethod
    def of(cls, size: int, mixtures: Mapping[int, tuple[Ints, Doubles]]) -> RowTransfer:
        empty = (np.zeros(0, np.int64), np.zeros(0))
        rows = [mixtures.get(number, empty) for number in range(size)]
        starts = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in rows])]).astype(np.int64)
        ids, weights = (np.concatenate([row[side] for row in rows]) for side in (0, 1))
        return cls(starts, ids.astype(np.int64), weights)

    @classmethod
    def read(cls, path: Path) -> RowTransfer:
        tensors = read_tensors(path, integers=True)
        return cls(*(tensors[name].numpy() for name in ("starts", "ids", "weights")))

    def write(self, path: Path) -> None:
        write_tensors(path, {name: torch.from_numpy(array) for name, array in vars(self).items()})

    @property
    def size(self) -> int:
        """Tokens of the new vocabulary."""
        return len(self.starts) - 1

    def apply(self, old: Tensor, *, name: str, seed: int) -> Tensor:
        """[V, …] rows of the new vocabulary from those of the old one; random rows vary as the old ones do."""
        rows, flat = torch.from_numpy(np.diff(self.starts)), old.to(torch.float64).reshape(len(old), -1)
        generator = torch.Generator().manual_seed(derive(seed, f"new rows {name}"))
        sampled = torch.randn(self.size, flat.shape[1], generator=generator, dtype=torch.float64)
        new = sampled * flat.std(0, correction=0) + flat.mean(0)
        new[rows > 0] = 0.0
        place = torch.repeat_interleave(torch.arange(self.size), rows)
        new.index_add_(0, place, flat[torch.from_numpy(self.ids)] * torch.from_numpy(self.weights)[:, None])
        return new.reshape(self.size, *old.shape[1:]).to(old.dtype)


def copies(shared: Ints) -> Mixtures:
    """Copied rows: the old id of each new token that has one."""
    return {int(new): (shared[new : new + 1], np.ones(1)) for new in np.flatnonzero(shared >= 0)}


def means(parts: Sequence[Sequence[int]]) -> Mixtures:
    """The mean of the old tokens of each new one."""
    return {
        number: (np.array(ids, np.int64), np.full(len(ids), 1 / len(ids))) for number, ids in enumerate(parts) if ids
    }


def focus(vectors: Doubles, shared: Ints) -> Mixtures:
    """Mixtures of shared tokens for all others that have a static vector.

    Args:
        vectors: [V, D] static vectors of the new tokens, of length 1 or 0.
        shared: [V] old ids of shared tokens, -1 of others.
    """
    seen = np.abs(vectors).sum(1) > 0
    anchors, others = np.flatnonzero(seen & (shared >= 0)), np.flatnonzero(seen & (shared < 0))
    if not len(anchors):
        return {}
    mixtures: Mixtures = {}
    for first in range(0, len(others), AT_ONCE):
        batch = others[first : first + AT_ONCE]
        for new, weights in zip(batch.tolist(), sparsemax(vectors[batch] @ vectors[anchors].T), strict=True):
            used = np.flatnonzero(weights)
            mixtures[new] = (shared[anchors[used]], weights[used])
    return mixtures


def sparsemax(scores_BA: Doubles) -> Doubles:
    """[B, A] the nearest probabilities to each row of scores (Martins & Astudillo 2016): small scores get 0.

    >>> sparsemax(np.array([[1.0, 0.5, -1.0]])).tolist()
    [[0.75, 0.25, 0.0]]
    """
    ordered = -np.sort(-scores_BA, axis=1)
    sums = np.cumsum(ordered, axis=1)
    places = np.arange(1, scores_BA.shape[1] + 1)
    count = (1 + places * ordered > sums).sum(1, keepdims=True)
    threshold = (np.take_along_axis(sums, count - 1, axis=1) - 1) / count
    weights_BA: Doubles = np.maximum(scores_BA - threshold, 0.0)
    return weights_BA


def wechsel(vectors: Doubles, old_vectors: Doubles) -> Mixtures:
    """Mixtures of the nearest old tokens, for all new tokens that have a static vector.

    Args:
        vectors: [V, D] static vectors of the new tokens, turned into the space of the old ones.
        old_vectors: [old V, D] static vectors of the old tokens, of length 1 or 0.
    """
    others = np.flatnonzero(np.abs(vectors).sum(1) > 0)
    anchors = np.flatnonzero(np.abs(old_vectors).sum(1) > 0)
    count = min(NEIGHBOURS, len(anchors))
    mixtures: Mixtures = {}
    for first in range(0, len(others) if count else 0, AT_ONCE):
        batch = others[first : first + AT_ONCE]
        near_BA = vectors[batch] @ old_vectors[anchors].T
        nearest = np.argsort(-near_BA, axis=1, kind="stable")[:, :count]
        scores = np.take_along_axis(near_BA, nearest, axis=1) / TEMPERATURE
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        mixtures |= {new: (anchors[nearest[row]], weights[row]) for row, new in enumerate(batch.tolist())}
    return mixtures
