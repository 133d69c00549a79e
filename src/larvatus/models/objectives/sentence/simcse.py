"""Unsupervised SimCSE: a text is its own positive, under another dropout mask (Gao, Yao & Chen 2021, eq. 4).

    L = −1/E Σ_i log exp(cos(h_i, h'_i) / τ) / Σ_j exp(cos(h_i, h'_j) / τ)        τ = 0.05

h and h' are the vectors of one text in two passes of a model in training mode. The batch holds every text twice, so
that one pass samples both masks; a model without dropout learns nothing from it, and is refused.

    SimCSE()
"""

from __future__ import annotations

from torch import Tensor

from larvatus.core.ranges import PositiveWeight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts
from larvatus.models.objectives.sentence.multiple_negatives import MultipleNegatives


class SimCSE(SentenceLoss, tag="simcse"):
    scale: PositiveWeight = 20.0
    """1 / τ."""

    @property
    def contrasts(self) -> bool:
        return True

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        return MultipleNegatives(scale=self.scale)(x_TD, targets)
