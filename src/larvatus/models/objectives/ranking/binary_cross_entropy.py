"""Binary cross-entropy: whether a passage answers a query is a yes or no (Nogueira & Cho 2019, *Passage Re-ranking
with BERT*, eq. 1).

    L(q, d) = −y log σ(s) − (1 − y) log(1 − σ(s))

y is 0 or 1, or a degree between them. The sigmoid of the score s is the probability that the passage is relevant.

    BinaryCrossEntropy()
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from larvatus.core.targets import RelevanceTargets
from larvatus.models.objectives.ranking.base import RankingLoss


class BinaryCrossEntropy(RankingLoss, tag="binary-cross-entropy"):
    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        labels_P = targets.grades.to(scores_P.dtype)
        return F.binary_cross_entropy_with_logits(scores_P, labels_P, reduction="none")
