"""Squared error: the score of a passage is its grade (Cossock & Zhang 2006, *Subset Ranking Using Regression*).

    L(q, d) = (s − y)²

For labels that mean something by themselves, such as grades from 0 to 3.

    MeanSquared()
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from larvatus.core.targets import RelevanceTargets
from larvatus.models.objectives.ranking.base import RankingLoss


class MeanSquared(RankingLoss, tag="mean-squared"):
    sigmoid: ClassVar = False

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        return (scores_P - targets.grades.to(scores_P.dtype)) ** 2
