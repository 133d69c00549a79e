"""Losses of rerankers: what is minimised when a model learns to score passages for a query.

    loss = Softmax()
    loss(scores_P, targets)               # the loss of each list, or of each pair

| loss | compares | labels |
| --- | --- | --- |
| binary-cross-entropy | a pair with its label | 0 or 1, or between |
| mean-squared | a pair with its label | any grades |
| softmax | the candidates of a query with each other | 0 or 1, or grades |
| listnet | the candidates of a query with each other | grades |

P pairs of a query and a passage, E lists (the pairs of a query follow each other).
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.settings import Settings
from larvatus.core.targets import RelevanceTargets


class RankingLoss(Settings, tag_field="type"):
    """Settings of a loss, which is their call."""

    listwise: ClassVar[bool] = False
    """Whether the candidates of a query are compared with each other, so that no step separates them."""
    sigmoid: ClassVar[bool] = True
    """Whether the sigmoid of a score is shown to people: it is within 0 … 1 and keeps the order."""

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        """[P] the loss of each pair; [E] that of each list for a listwise loss."""
        raise NotImplementedError


class BinaryCrossEntropy(RankingLoss, tag="binary-cross-entropy"):
    """Binary cross-entropy: whether a passage answers a query is a yes or no (Nogueira & Cho 2019, *Passage Re-ranking
    with BERT*, eq. 1).

        L(q, d) = −y log σ(s) − (1 − y) log(1 − σ(s))

    y is 0 or 1, or a degree between them. The sigmoid of the score s is the probability that the passage is relevant.

        BinaryCrossEntropy()
    """

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        labels_P = targets.grades.to(scores_P.dtype)
        return F.binary_cross_entropy_with_logits(scores_P, labels_P, reduction="none")


class MeanSquared(RankingLoss, tag="mean-squared"):
    """Squared error: the score of a passage is its grade (Cossock & Zhang 2006, *Subset Ranking Using Regression*).

        L(q, d) = (s − y)²

    For labels that mean something by themselves, such as grades from 0 to 3.

        MeanSquared()
    """

    sigmoid: ClassVar = False

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        return (scores_P - targets.grades.to(scores_P.dtype)) ** 2


class Softmax(RankingLoss, tag="softmax"):
    """Softmax cross-entropy over the candidates of a query (Bruch et al. 2019, *An Analysis of the Softmax Cross
    Entropy Loss for Learning-to-Rank with Binary Relevance*; with hard negatives, the localised contrastive estimation
    of Gao, Dai & Callan 2021).

        L(q) = −Σ_d (y_d / Σ_d' y_d') log softmax(s)_d        softmax(s)_d = exp s_d / Σ_d' exp s_d'

    The target is all on the relevant passages, each in proportion to its grade. With one of them, this is the
    cross-entropy of choosing it. A query without a relevant passage has no target.

        Softmax()
    """

    listwise: ClassVar = True

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        owner_P, count = owners(targets), len(targets.candidates)
        grades_P = targets.grades.to(scores_P.dtype)
        shares_P = grades_P / list_sums(grades_P, owner_P, count)[owner_P]
        return -list_sums(shares_P * list_log_softmax(scores_P, owner_P, count), owner_P, count)


class ListNet(RankingLoss, tag="listnet"):
    """ListNet: the softmax of the scores shall be the softmax of the grades (Cao et al. 2007, *Learning to Rank: From
    Pairwise Approach to Listwise Approach*, eq. 4 with top-one probabilities).

        L(q) = −Σ_d softmax(y)_d log softmax(s)_d

    A grade higher by 1 makes a passage e times as likely to be the first. So with labels 0 and 1 the target of a long
    list is nearly flat; `Softmax` puts it on the relevant passages only.

        ListNet()
    """

    listwise: ClassVar = True

    def __call__(self, scores_P: Tensor, targets: RelevanceTargets[Tensor]) -> Tensor:
        owner_P, count = owners(targets), len(targets.candidates)
        target_P = list_log_softmax(targets.grades.to(scores_P.dtype), owner_P, count).exp()
        return -list_sums(target_P * list_log_softmax(scores_P, owner_P, count), owner_P, count)


AnyRankingLoss = BinaryCrossEntropy | MeanSquared | Softmax | ListNet
"""All losses of rerankers."""


def list_sums(x_P: Tensor, owner_P: Tensor, count: int) -> Tensor:
    """The sum of each list: [P] → [E].

    >>> list_sums(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 1]), 2).tolist()
    [3.0, 4.0]
    """
    return x_P.new_zeros(count).index_add(0, owner_P, x_P)


def list_log_softmax(x_P: Tensor, owner_P: Tensor, count: int) -> Tensor:
    """The logarithm of the softmax over each list: [P] → [P]."""
    highest_E = x_P.new_full((count,), -torch.inf).scatter_reduce(0, owner_P, x_P.detach(), "amax")
    shifted_P = x_P - highest_E[owner_P]
    return shifted_P - list_sums(shifted_P.exp(), owner_P, count).log()[owner_P]


def owners(targets: RelevanceTargets[Tensor]) -> Tensor:
    """[P] the list of each pair."""
    lists = torch.arange(len(targets.candidates), device=targets.candidates.device)
    return torch.repeat_interleave(lists, targets.candidates, output_size=len(targets.grades))
