"""Sampling from a softmax with numbers drawn beforehand: the inverse of the cumulative distribution.

    v = min { v : p_1 + … + p_v > u }        u uniform in [0, 1)

One draw a row, made by the corruption and part of the batch, so a sample has no hidden state: it is a function of the
distribution and the draw. Two runs whose logits differ by rounding differ in a sample only where u falls that close to
a border. C rows, V outcomes.

    >>> inverse_cdf(torch.tensor([[1.0, 1.0, 2.0]]), torch.tensor([1 << 31]))      # u = 1/2: where the last one begins
    tensor([2])
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEVELS = 1 << 24  # float32 holds every multiple of 2^-24 below 1


@torch.no_grad()
def inverse_cdf(weights_CV: Tensor, bits_C: Tensor) -> Tensor:
    """One outcome a row, with probabilities proportional to the weights; `bits` are 32 random bits a row."""
    sums_CV = weights_CV.cumsum(-1)
    u_C1 = (bits_C[:, None] >> 8).to(sums_CV.dtype) / _LEVELS
    index_C1 = torch.searchsorted(sums_CV, u_C1 * sums_CV[:, -1:], right=True)
    return index_C1.squeeze(-1).clamp(max=weights_CV.shape[-1] - 1)  # where rounding lifted the product to the sum
