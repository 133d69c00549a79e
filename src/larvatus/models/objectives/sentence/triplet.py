"""Triplet loss: a positive shall be nearer to its anchor than a negative, by a margin (Schroff et al. 2015, eq. 3).

    L = 1/E Σ_i 1/N_i Σ_n max(0, d(a_i, p_i) − d(a_i, n) + margin)        d = 1 − cos, or ‖a − b‖

An example i has an anchor a, a positive p and N negatives n, mostly one. The margin of the Euclidean distance is for
vectors that are not normalised (Reimers & Gurevych 2019 use 1, their library 5). Of other kinds of vectors, d is
1 − score.

    Triplet(distance="cosine", margin=0.2)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from larvatus.core.ranges import Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts, TextVectors, paired_similarities, roles


class Triplet(SentenceLoss, tag="triplet"):
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Distance of two vectors."""
    margin: Weight = 0.2
    """How much nearer the positive shall be."""

    @property
    def whole(self) -> bool:
        return False

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        anchors_ED, positives_ED, negatives_ND, owners_N = roles(x_TD.float(), targets.texts)
        anchors_ND, positives_ND = anchors_ED[owners_N], positives_ED[owners_N]
        gap_N = self._distances(anchors_ND, positives_ND) - self._distances(anchors_ND, negatives_ND)
        counts_N = (targets.texts - 2)[owners_N]
        return ((gap_N + self.margin).relu() / counts_N).sum() / len(anchors_ED)

    def _distances(self, x_ND: Texts, y_ND: Texts) -> Tensor:
        if self.distance == "cosine" or isinstance(x_ND, TextVectors) or isinstance(y_ND, TextVectors):
            return 1 - paired_similarities(x_ND, y_ND)
        distances_N: Tensor = torch.linalg.vector_norm(x_ND - y_ND, dim=-1)
        return distances_N
