"""CoSENT: pairs with a higher score shall have a higher cosine (Su 2022, *CoSENT*, kexue.fm/archives/8847).

    L = log(1 + Σ_{score_i > score_j} exp(s (cos_j − cos_i)))

Only the order of the scores counts, as in Spearman's ρ, by which such models are measured. Equal scores are not
compared. The double sum is over pairs of pairs; sorted by score, it is one pass: what is above a pair is a suffix.

    CoSENT(scale=20.0)
"""

from __future__ import annotations

import torch
from torch import Tensor

from larvatus.core.ranges import PositiveWeight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts, paired_similarities, roles


class CoSENT(SentenceLoss, tag="cosent"):
    scale: PositiveWeight = 20.0
    """Factor of the cosines."""

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        firsts_ED, seconds_ED, _, _ = roles(x_TD.float(), targets.texts)
        scaled_E = self.scale * paired_similarities(firsts_ED, seconds_ED)
        sorted_E, order_E = torch.sort(targets.scores)
        scaled_E = scaled_E[order_E]
        # log Σ exp(−s cos_i) over the pairs from each place to the end; after the last, there is none
        suffix_E = torch.logcumsumexp(-scaled_E.flip(0), 0).flip(0)
        suffix = torch.cat([suffix_E, suffix_E.new_full((1,), -torch.inf)])
        above_E = torch.searchsorted(sorted_E, sorted_E, right=True)
        terms_E = scaled_E + suffix[above_E]
        return torch.logsumexp(torch.cat([terms_E.new_zeros(1), terms_E]), 0)
