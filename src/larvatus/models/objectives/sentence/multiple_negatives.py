"""Multiple negatives ranking: the positives of all other examples are negatives (Henderson et al. 2017, §4.4).

    L = −1/E Σ_i log exp(s cos(a_i, p_i)) / Σ_c exp(s cos(a_i, c))        c over all positives and all hard negatives

This is InfoNCE (van den Oord et al. 2018) with the temperature 1/s. `symmetric` adds the other direction, from a
positive to all anchors, and takes the mean of both (Günther et al. 2023, §4.2). Hard negatives (the third text of an
example, and any after it) are negatives of all examples, as in DPR (Karpukhin et al. 2020, §3.2).

    MultipleNegatives(scale=20.0, symmetric=True)

A text that is in a step twice would be a negative of its own positive: `tasks/embed/batches.py` avoids that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.ranges import PositiveWeight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts, roles, similarities


class MultipleNegatives(SentenceLoss, tag="multiple-negatives"):
    scale: PositiveWeight = 20.0
    """Factor of the cosines, the inverse of a temperature."""
    symmetric: bool = False
    """Also rank the anchors for each positive."""

    @property
    def contrasts(self) -> bool:
        return True

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        anchors_ED, positives_ED, negatives_ND, _ = roles(x_TD.float(), targets.texts)
        own_E = torch.arange(len(anchors_ED), device=x_TD.device)
        candidates = [similarities(anchors_ED, texts) for texts in (positives_ED, negatives_ND)]
        scores_EC = self.scale * torch.cat(candidates, 1)
        loss = F.cross_entropy(scores_EC, own_E)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores_EC[:, : len(own_E)].T, own_E)) / 2
        return loss
