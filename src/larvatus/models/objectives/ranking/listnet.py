"""ListNet: the softmax of the scores shall be the softmax of the grades (Cao et al. 2007, *Learning to Rank: From
Pairwise Approach to Listwise Approach*, eq. 4 with top-one probabilities).

    L(q) = −Σ_d softmax(y)_d log softmax(s)_d

A grade higher by 1 makes a passage e times as likely to be the first. So with labels 0 and 1 the target of a long list
is nearly flat; `softmax.py` puts it on the relevant passages only.

    ListNet()
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from larvatus.core.targets import RelevanceTargets
from larvatus.models.objectives.ranking.base import RankingLoss, list_log_softmax, list_sums, owners


class ListNet(RankingLoss, tag="listnet"):
    listwise: ClassVar = True

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        owner_P, count = owners(targets), len(targets.candidates)
        target_P = list_log_softmax(targets.grades.to(scores_P.dtype), owner_P, count).exp()
        return -list_sums(target_P * list_log_softmax(scores_P, owner_P, count), owner_P, count)
