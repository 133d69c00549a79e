"""Scores of relations between spans: every ordered pair (head, tail), without ever building the vectors of pairs.

    score_ht = W_o relu(W_h s_h + W_t s_t + type_h + type_t + distance_ht + b) + b_o,    s = [z_i; z_j; mean] (11.22)

The first layer over [s_h; s_t] is linear, so each span is projected twice, as a head and as a tail, and pairs only add
these: n spans take n · 6D · H products, not n². The types of the two spans (Zhong & Chen 2021) and their distance and
direction are learned vectors that are added. Scoring needs only the two projections of a span, so spans of different
windows can be paired. W words, D hidden size, n spans, P pairs, H size of the hidden layer, K scores of a pair.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 10
DISTANCES = 1 + 2 * STEPS
"""Spans that share a word; the tail 1, 2 to 3, 4 to 7 … words after the head's end; the same before its start."""


class RelationScorer(nn.Module):
    def __init__(self, size: int, *, hidden: int, types: int, outputs: int) -> None:
        super().__init__()
        self.sides = nn.Linear(3 * size, 2 * hidden, bias=False)  # W_h and W_t
        self.types = nn.Embedding(types, 2 * hidden)
        self.distance = nn.Embedding(DISTANCES, hidden)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.output = nn.Linear(hidden, outputs)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); embeddings and biases start at 0."""
        for parameter in self.parameters():
            parameter.zero_()
        for part in (self.sides, self.output):
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0, part.in_features**-0.5, generator=generator))

    def project(self, z_WD: Tensor, first_n: Tensor, last_n: Tensor, types_n: Tensor) -> Tensor:
        """Each span as a head and as a tail, concatenated: [n, 2H]. Words first … last, inclusive."""
        s_nC = torch.cat([z_WD[first_n], z_WD[last_n], span_means(z_WD, first_n, last_n)], -1)
        sides_nH: Tensor = self.sides(s_nC) + self.types(types_n)
        return _wide(sides_nH)

    def forward(self, sides_nH: Tensor, heads_P: Tensor, tails_P: Tensor, distances_P: Tensor) -> Tensor:
        """Scores of pairs of projected spans: [P, K]. Distances are those of `distances`."""
        head_nH, tail_nH = sides_nH.chunk(2, -1)
        with torch.autocast(sides_nH.device.type, enabled=False):
            hidden_PH = head_nH[heads_P] + tail_nH[tails_P]
            hidden_PH = hidden_PH + self.distance(distances_P) + self.bias
            return F.linear(hidden_PH.relu(), self.output.weight, self.output.bias)


def span_means(z_WD: Tensor, first_n: Tensor, last_n: Tensor) -> Tensor:
    """The mean vector of the words first … last of each span: [n, D]."""
    lengths_n = last_n - first_n + 1
    owners = torch.repeat_interleave(torch.arange(len(first_n), device=first_n.device), lengths_n)
    before_n = lengths_n.cumsum(0) - lengths_n
    words = first_n[owners] + torch.arange(len(owners), device=first_n.device) - before_n[owners]
    z = _wide(z_WD[words])
    return z.new_zeros(len(first_n), z.shape[-1]).index_add(0, owners, z) / lengths_n[:, None]


def _wide(x: Tensor) -> Tensor:
    """Sums need more than 8 bits."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def gaps(first_n: Tensor, last_n: Tensor, heads_P: Tensor, tails_P: Tensor) -> Tensor:
    """Words from the head's last to the tail's first; below 0 if the tail comes before; 0: they share a word.

    >>> first, last = torch.tensor([0, 2, 0]), torch.tensor([0, 3, 2])
    >>> gaps(first, last, torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1])).tolist()
    [2, -2, 0]
    """
    after_P = first_n[tails_P] - last_n[heads_P]
    before_P = first_n[heads_P] - last_n[tails_P]
    return after_P.clamp(min=0) - before_P.clamp(min=0)


def distances(gaps_P: Tensor) -> Tensor:
    """Gaps on a scale of powers of two, by direction: 0 … DISTANCES − 1."""
    steps = 2 ** torch.arange(STEPS, device=gaps_P.device)
    step_P = torch.bucketize(gaps_P.abs(), steps, right=True)  # 0 for a gap of 0
    return torch.where(gaps_P < 0, step_P + STEPS, step_P)
