"""Cross-entropy over a vocabulary too large for each step: its normaliser is estimated from a sample of words.

    Z = Σ_v exp s_v  ≈  Σ_{v < H} exp s_v  +  exp s_t  +  1/K Σ_{j = 1 … K, n_j ≠ t}  exp s_{n_j} / q(n_j)

The first H rows, which hold the commonest marks, are always there, and so is the target t; K words n_j are drawn from q
for the whole batch (importance sampling, Bengio & Senécal 2003; Jean et al. 2015). The estimate of Z has the mean Z.
q falls with the rank of a word, as Zipf's law says, and is the log-uniform one of released code:

    q(H + r) = log((r + 2) / (r + 1)) / log(V − H + 1)            r = 0 … V − H − 1

Draws come from torch's generator, as dropout's do. M predictions, P size of a vector, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.models.nn.buckets import IGNORE


def log_uniform(count: int, ranks: int, device: torch.device) -> Tensor:
    """Ranks drawn with replacement: [K]. P(r) = log((r + 2) / (r + 1)) / log(ranks + 1)."""
    u_K = torch.rand(count, device=device, dtype=torch.float64)
    return (torch.exp(u_K * math.log(ranks + 1)).long() - 1).clamp(0, ranks - 1)


def log_normalisers(
    h_MP: Tensor, w_VP: Tensor, b_V: Tensor, ids_M: Tensor, *, head: int, samples: int
) -> tuple[Tensor, Tensor]:
    """The target's score, and the logarithm of the estimate of Z: [M] each."""
    ranks = len(w_VP) - head
    drawn_K = log_uniform(samples, ranks, w_VP.device)
    log_q_K = ((drawn_K + 2).log() - (drawn_K + 1).log()).log() - math.log(math.log(ranks + 1))
    words_K = drawn_K + head
    target_M = (h_MP * w_VP.index_select(0, ids_M)).sum(-1) + b_V.index_select(0, ids_M)
    first_MH = F.linear(h_MP, w_VP[:head], b_V[:head])
    drawn_MK = F.linear(h_MP, w_VP.index_select(0, words_K), b_V.index_select(0, words_K))
    wide = torch.promote_types(first_MH.dtype, torch.float32)
    drawn_MK = drawn_MK.to(wide) - (log_q_K + math.log(samples)).to(wide)
    drawn_MK = drawn_MK.masked_fill(words_K == ids_M[:, None], -torch.inf)
    beyond_M1 = target_M.to(wide).masked_fill(ids_M < head, -torch.inf)[:, None]  # others are in the head already
    log_z_M = torch.logsumexp(torch.cat([first_MH.to(wide), beyond_M1, drawn_MK], dim=-1), dim=-1)
    return target_M.to(wide), log_z_M


def sampled_cross_entropy(h_MP: Tensor, w_VP: Tensor, b_V: Tensor, ids_M: Tensor, *, head: int, samples: int) -> Tensor:
    """Sum of the losses, estimated; labels of −100 count nowhere."""
    target_M, log_z_M = log_normalisers(h_MP, w_VP, b_V, ids_M.clamp(min=0), head=head, samples=samples)
    return (log_z_M - target_M).masked_fill(ids_M == IGNORE, 0.0).sum()
