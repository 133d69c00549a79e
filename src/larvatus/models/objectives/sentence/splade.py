"""SPLADE: sparse vectors over the vocabulary, learned with any loss of scores (Formal et al. 2021a; max pooling: SPLADE
v2, Formal et al. 2021b, eq. 6).

    w_j = max_i log(1 + relu(logit_ij))                   i over the tokens of a text, j over the vocabulary
    score(q, d) = w(q) · w(d)
    L = L_inner + λ_q(t) FLOPS(queries) + λ_d(t) FLOPS(documents)
    FLOPS(B) = Σ_j (1/|B| Σ_{i∈B} w_ij)²                  Paria et al. 2020, eq. 4
    λ(t) = λ · min(1, t / warm_up)²                       t: share of the training steps that are done

FLOPS is the mean number of products of a search: it makes words rare that are in most texts. Its weight starts at 0 and
grows quadratically, because a model that is made sparse at once learns nothing (Formal et al. 2021a, §3.4).

    Splade(inner=MultipleNegatives(scale=1.0), query_weight=5e-5, document_weight=3e-5)(x_TV, targets, progress=0.2)

The first text of an example is a query, all others are documents; texts without a partner are documents. T texts, V
vocabulary. `models/heads/sparse.py` computes w.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.ranges import PositiveShare, Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.losses import MultipleNegatives, PlainLoss, SentenceLoss, Texts, TextVectors


@dataclass(frozen=True, eq=False)
class WeightVectors(TextVectors):
    """T texts as weights of the vocabulary, compared by their dot product."""

    x_TV: Tensor

    @property
    def device(self) -> torch.device:
        return self.x_TV.device

    def __len__(self) -> int:
        return len(self.x_TV)

    def __getitem__(self, texts: Tensor) -> WeightVectors:
        return WeightVectors(self.x_TV[texts])

    def float(self) -> WeightVectors:
        return WeightVectors(self.x_TV.float())

    def scores(self, others: WeightVectors) -> Tensor:
        return self.x_TV @ others.x_TV.T

    def paired_scores(self, others: WeightVectors) -> Tensor:
        return (self.x_TV * others.x_TV).sum(-1)

    def cosines(self, others: WeightVectors) -> Tensor:
        return F.normalize(self.x_TV, dim=-1) @ F.normalize(others.x_TV, dim=-1).T


class Splade(SentenceLoss, tag="splade"):
    inner: PlainLoss = MultipleNegatives(scale=1.0)
    """The loss of the scores."""
    query_weight: Weight = 5e-5
    """λ of the first text of an example."""
    document_weight: Weight = 3e-5
    """λ of all other texts."""
    warm_up: PositiveShare = 1 / 3
    """Share of the steps over which both weights grow."""

    @property
    def contrasts(self) -> bool:
        return self.inner.contrasts

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor], *, progress: float = 1.0) -> Tensor:
        x_TV = x_TD.x_TV if isinstance(x_TD, WeightVectors) else x_TD
        assert isinstance(x_TV, Tensor)
        x_TV = x_TV.float()
        loss = self.inner(WeightVectors(x_TV), targets)
        first_E = torch.cumsum(targets.texts, 0) - targets.texts
        query_T = torch.zeros(len(x_TV), dtype=torch.bool, device=x_TV.device)
        query_T[first_E] = targets.texts > 1
        grown = min(1.0, progress / self.warm_up) ** 2
        regulariser = self.query_weight * flops(x_TV, query_T) + self.document_weight * flops(x_TV, ~query_T)
        return loss + grown * regulariser


def flops(x_TV: Tensor, chosen_T: Tensor) -> Tensor:
    """FLOPS of some texts; 0 of none."""
    share_T = chosen_T / chosen_T.sum().clamp(min=1)
    return (share_T.to(x_TV.dtype) @ x_TV).square().sum()
