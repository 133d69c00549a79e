"""The interface of a loss of sentence vectors, and the cosine that they share.

    class MyLoss(SentenceLoss, tag="my-loss"):
        def __call__(self, x_TD, targets): …          # one number: the mean over the examples of a step

E examples, T texts (those of an example follow each other), D size of a vector.
"""

from __future__ import annotations

from typing import NamedTuple

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

    def __call__(self, x_TD: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """The mean loss of the examples, in float32."""
        raise NotImplementedError


class Roles(NamedTuple):
    """The vectors of a step by their role."""

    anchors_ED: Tensor
    positives_ED: Tensor
    negatives_ND: Tensor
    """Hard negatives of all examples, N ≥ 0."""
    owners_N: Tensor
    """The example that each hard negative is of."""


def roles(x_TD: Tensor, texts_E: Tensor) -> Roles:
    """The first text of each example is its anchor, the second its positive, all others are hard negatives."""
    first_E = torch.cumsum(texts_E, 0) - texts_E
    owner_T = torch.repeat_interleave(torch.arange(len(texts_E), device=x_TD.device), texts_E, output_size=len(x_TD))
    place_T = torch.arange(len(x_TD), device=x_TD.device) - first_E[owner_T]
    negative = place_T > 1
    return Roles(x_TD[first_E], x_TD[first_E + 1], x_TD[negative], owner_T[negative])


def cosines(x_ND: Tensor, y_MD: Tensor) -> Tensor:
    """[N, M] the cosine of each row with each row."""
    return F.normalize(x_ND, dim=-1) @ F.normalize(y_MD, dim=-1).T


def paired_cosines(x_ND: Tensor, y_ND: Tensor) -> Tensor:
    """[N] the cosine of each row with the row of the same number."""
    return (F.normalize(x_ND, dim=-1) * F.normalize(y_ND, dim=-1)).sum(-1)
