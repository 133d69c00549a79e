"""The next token: the likeliest, or one drawn by temperature among the top k (Fan et al. 2018) or the nucleus, the
fewest tokens that have p of the probability together (Holtzman et al. 2020).

    p_v ∝ exp(logit_v / temperature)      then the k likeliest, then the nucleus of what is left, as `transformers` does

Draws are counter-based, f(seed, sample, prompt, place): a prompt is gone on with in the same way whatever it is batched
with, and however many samples are asked for. R sequences under way, V vocabulary.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    >>> Sampling(temperature=1.0, top_k=2).weights(logits)[0].count_nonzero().item()
    2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from larvatus.core import rng
from larvatus.core.arrays import Ints
from larvatus.models.objectives.sampling import inverse_cdf

PURPOSE = "generate"


class Choice(Protocol):
    """How the next token of each sequence is chosen."""

    def __call__(self, logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
        """[R] tokens; `rows` are the numbers that the sequences began with, `place` counts tokens added so far."""


def greedy(logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
    """The likeliest token of each."""
    return logits_RV.argmax(-1)


@dataclass(frozen=True)
class Sampling:
    """What the distribution is made into before a token is drawn from it."""

    temperature: float
    top_k: int | None = None
    top_p: float | None = None

    def weights(self, logits_RV: Tensor) -> Tensor:
        """Probabilities [R, V] in float64; 0 for tokens that are not drawn."""
        scores_RV = logits_RV.double() / self.temperature
        if self.top_k is not None and self.top_k < scores_RV.shape[-1]:
            least_R1 = scores_RV.topk(self.top_k, dim=-1).values[:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            scores_RV = scores_RV.masked_fill(~self._nucleus(scores_RV), -torch.inf)
        return scores_RV.softmax(-1)

    def _nucleus(self, scores_RV: Tensor) -> Tensor:
        """Which tokens are in it: those before which less than p has been gathered, likeliest first."""
        assert self.top_p is not None
        sorted_RV, order_RV = scores_RV.sort(dim=-1, descending=True, stable=True)
        likely_RV = sorted_RV.softmax(-1)
        inside_RV = likely_RV.cumsum(-1) - likely_RV < self.top_p
        inside_RV[:, 0] = True
        return torch.zeros_like(inside_RV).scatter_(-1, order_RV, inside_RV)


@dataclass(frozen=True, eq=False)
class Draws:
    """A choice by sampling: sequence b is the sample `samples[b]` of the prompt `prompts[b]`."""

    sampling: Sampling
    seed: int
    prompts: Ints  # [B] numbers of the prompts among all that were given
    samples: Ints  # [B]

    def __call__(self, logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
        bits_R = torch.from_numpy(self.bits(rows, place)).to(logits_RV.device)
        return inverse_cdf(self.sampling.weights(logits_RV), bits_R)

    def bits(self, rows: Ints, place: int) -> Ints:
        """32 random bits for the next token of each sequence."""
        prompts, samples = self.prompts[rows], self.samples[rows]
        bits = np.empty(len(rows), dtype=np.int64)
        for sample in np.unique(samples).tolist():
            of_sample = samples == sample
            items = prompts[of_sample]
            drawn = rng.random_bits(self.seed, PURPOSE, sample, items=items, draws=np.full(len(items), place))
            bits[of_sample] = drawn[0].astype(np.int64)
        return bits
