"""A vector for each word from those of its subwords: the first one's, or the mean or maximum of all.

N tokens, P (token, word) pairs, W words, D hidden size.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

WordPool = Literal["first", "mean", "max"]


def pool_words(z_ND: Tensor, rows_P: Tensor, words_P: Tensor, *, count: int, pool: WordPool) -> Tensor:
    """[N, D] → [W, D], from the token and the word of each pair, both ascending. A word without a token gets zeros."""
    if pool == "first":
        first_P = torch.ones_like(words_P, dtype=torch.bool)
        first_P[1:] = words_P[1:] != words_P[:-1]
        rows_P, words_P = rows_P[first_P], words_P[first_P]
    tokens_PD = z_ND.index_select(0, rows_P)
    start_WD = tokens_PD.new_zeros(count, z_ND.shape[1])
    if pool == "first":
        return start_WD.index_copy(0, words_P, tokens_PD)
    reduce = "mean" if pool == "mean" else "amax"
    return start_WD.scatter_reduce(0, words_P[:, None].expand_as(tokens_PD), tokens_PD, reduce, include_self=False)
