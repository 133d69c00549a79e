"""Softmax cross-entropy over the candidates of a query (Bruch et al. 2019, *An Analysis of the Softmax Cross Entropy
Loss for Learning-to-Rank with Binary Relevance*; with hard negatives, the localised contrastive estimation of Gao, Dai
& Callan 2021).

    L(q) = −Σ_d (y_d / Σ_d' y_d') log softmax(s)_d        softmax(s)_d = exp s_d / Σ_d' exp s_d'

The target is all on the relevant passages, each in proportion to its grade. With one of them, this is the
cross-entropy of choosing it. A query without a relevant passage has no target.

    Softmax()
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from larvatus.core.targets import RelevanceTargets
from larvatus.models.objectives.ranking.base import RankingLoss, list_log_softmax, list_sums, owners


class Softmax(RankingLoss, tag="softmax"):
    listwise: ClassVar = True

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        owner_P, count = owners(targets), len(targets.candidates)
        grades_P = targets.grades.to(scores_P.dtype)
        shares_P = grades_P / list_sums(grades_P, owner_P, count)[owner_P]
        return -list_sums(shares_P * list_log_softmax(scores_P, owner_P, count), owner_P, count)
