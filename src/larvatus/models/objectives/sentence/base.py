"""The interface of a loss of sentence vectors, and the similarity of two texts that they share.

    class MyLoss(SentenceLoss, tag="my-loss"):
        def __call__(self, x_TD, targets): …          # one number: the mean over the examples of a step

Texts that are a vector each are compared by cosine. Others (`TextVectors`: token vectors, sparse vectors) have their
own score, and every loss that is computed from scores takes them in place of x_TD.

E examples, T texts (those of an example follow each other), D size of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.settings import Settings
from larvatus.core.targets import SentenceTargets


class SentenceLoss(Settings, tag_field="type"):
    """Settings of a loss, which is their call."""

    @property
    def whole(self) -> bool:
        """Whether an example's loss depends on the others of its step, so that the parts of a step do not add up."""
        return True

    @property
    def contrasts(self) -> bool:
        """Whether the other texts of a step are negatives, so that a step must not hold a text twice."""
        return False

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        """The mean loss of the examples, in float32."""
        raise NotImplementedError


class TextVectors(ABC):
    """T texts that are not compared by the cosine of one vector each."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, texts: Tensor) -> Self:
        """Some of the texts, by number."""

    @abstractmethod
    def float(self) -> Self:
        """The texts in float32."""

    @abstractmethod
    def scores(self, others: Self) -> Tensor:
        """[N, M] the score of each text, as the query, with each of the others."""

    @abstractmethod
    def paired_scores(self, others: Self) -> Tensor:
        """[N] the score of each text with the one of the same number."""

    @abstractmethod
    def cosines(self, others: Self) -> Tensor:
        """[N, M] the scores on the scale of cosines: at most 1."""


Texts = Tensor | TextVectors
"""Texts that are compared: a vector for each [T, D], or another kind of vectors."""


class Roles(NamedTuple):
    """The texts of a step by their role."""

    anchors_ED: Texts
    positives_ED: Texts
    negatives_ND: Texts
    """Hard negatives of all examples, N ≥ 0."""
    owners_N: Tensor
    """The example that each hard negative is of."""


def roles(x_TD: Texts, texts_E: Tensor) -> Roles:
    """The first text of each example is its anchor, the second its positive, all others are hard negatives."""
    first_E = torch.cumsum(texts_E, 0) - texts_E
    owner_T = torch.repeat_interleave(torch.arange(len(texts_E), device=x_TD.device), texts_E, output_size=len(x_TD))
    place_T = torch.arange(len(x_TD), device=x_TD.device) - first_E[owner_T]
    negatives_N = torch.nonzero(place_T > 1)[:, 0]
    return Roles(x_TD[first_E], x_TD[first_E + 1], x_TD[negatives_N], owner_T[negatives_N])


def similarities(x: Texts, y: Texts) -> Tensor:
    """[N, M] the similarity of each text with each: cosines of vectors, or the scores of another kind of vectors."""
    if isinstance(x, TextVectors):
        return x.scores(y)  # type: ignore[arg-type]  # texts of one model are of one kind
    return cosines(x, y)  # type: ignore[arg-type]


def paired_similarities(x: Texts, y: Texts) -> Tensor:
    """[N] the similarity of each text with the text of the same number."""
    if isinstance(x, TextVectors):
        return x.paired_scores(y)  # type: ignore[arg-type]
    return paired_cosines(x, y)  # type: ignore[arg-type]


def cosines(x_ND: Tensor, y_MD: Tensor) -> Tensor:
    """[N, M] the cosine of each row with each row."""
    return F.normalize(x_ND, dim=-1) @ F.normalize(y_MD, dim=-1).T


def paired_cosines(x_ND: Tensor, y_ND: Tensor) -> Tensor:
    """[N] the cosine of each row with the row of the same number."""
    return (F.normalize(x_ND, dim=-1) * F.normalize(y_ND, dim=-1)).sum(-1)
