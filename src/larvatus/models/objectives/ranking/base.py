"""The interface of a loss of rerankers, and the sums over a query's candidates that listwise losses share.

    class MyLoss(RankingLoss, tag="my-loss"):
        def __call__(self, scores_P, targets): …          # [P] a number for each pair, or [E] for each list

P pairs of a query and a passage, E lists (the pairs of a query follow each other).
"""

from __future__ import annotations

from typing import ClassVar

import torch
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
