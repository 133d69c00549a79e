"""Pooling: the token that represents a whole sequence, and a vector for each word from its subwords.

[CLS] represents a sequence; BERT puts it first, XLNet and GPT read it last:

    pool = "cls"     the first token (BERT, RoBERTa, …)
    pool = "last"    the last token (XLNet's <cls>, or the last token of a causal model)

The template of a vocabulary decides which of them it means:

    >>> from larvatus.data.text.template import Template
    >>> summary_pool(Template.bert(2, 3)), summary_pool(Template.xlnet(2, 3))
    ('cls', 'last')
    >>> summary_places(torch.tensor([4, 3]), "last").tolist()
    [3, 6]

A word's vector is that of its first subword, or the mean or maximum of all. N tokens, P (token, word) pairs, W words, B
sequences, D hidden size.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
from torch import Tensor

from larvatus.data.text.template import Template

P = TypeVar("P", bound=str)
SummaryPool = Literal["cls", "last"]
SUMMARIES: tuple[SummaryPool, ...] = ("cls", "last")
"""Ways to pool that read only one token of a sequence."""


def summary_pool(frame: Template) -> SummaryPool:
    """The pooling that reads the summary token of a vocabulary."""
    return "last" if frame.single.summary else "cls"


def resolve_pool(frame: Template, pool: P) -> P | SummaryPool:
    """The pooling in a vocabulary's template: [CLS] means the summary token, wherever it is."""
    return summary_pool(frame) if pool == "cls" else pool


def summary_places(lengths_B: Tensor, pool: str) -> Tensor:
    """Position of the summary token of each sequence in the flat batch: [B] → [B]."""
    ends_B = torch.cumsum(lengths_B, 0)
    return ends_B - 1 if pool == "last" else ends_B - lengths_B


def summary_tokens(z_ND: Tensor, lengths_B: Tensor, pool: str) -> Tensor:
    """The vector of each sequence's summary token: [N, D] → [B, D]. An empty (filler) one gets another's."""
    return z_ND.index_select(0, summary_places(lengths_B, pool).clamp(0, z_ND.shape[0] - 1))


def pooled_padded(z_BLD: Tensor, mask_BL: Tensor, pool: str) -> Tensor:
    """The pooled vector of each padded sequence, by `cls`, `last`, `mean` or `max`: [B, L, D] → [B, D]."""
    if pool == "cls":
        return z_BLD[:, 0]
    mask_BL1 = mask_BL[:, :, None].to(z_BLD.dtype)
    if pool == "last":
        last_B11 = (mask_BL.sum(1) - 1)[:, None, None]
        return z_BLD.gather(1, last_B11.expand(-1, 1, z_BLD.shape[2]))[:, 0]
    if pool == "mean":
        return (z_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
    return z_BLD.masked_fill(mask_BL1 == 0, torch.finfo(z_BLD.dtype).min).amax(1)


def owners(lengths_B: Tensor, total: int) -> Tensor:
    """The sequence of each token: [B] → [N]. `total` is N, so that CUDA need not wait for the lengths.

    >>> owners(torch.tensor([2, 1]), 3).tolist()
    [0, 0, 1]
    """
    return torch.repeat_interleave(torch.arange(len(lengths_B), device=lengths_B.device), lengths_B, output_size=total)


def segment_means(x_NK: Tensor, lengths_B: Tensor) -> Tensor:
    """Means of runs of rows: [N, K] → [B, K].

    >>> segment_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([2, 1])).tolist()
    [[2.0], [5.0]]
    """
    sums_BK = x_NK.new_zeros(len(lengths_B), x_NK.shape[1]).index_add(0, owners(lengths_B, len(x_NK)), x_NK)
    return sums_BK / lengths_B[:, None].to(sums_BK.dtype)


WordPool = Literal["first", "mean", "max"]


def pool_words(z_ND: Tensor, rows_P: Tensor, words_P: Tensor, *, count: int, pool: WordPool) -> Tensor:
    """[N, D] → [W, D], from the token and the word of each pair, both ascending. A word without a token gets zeros."""
    if pool == "first" and len(words_P):
        words_W = torch.arange(count, device=words_P.device)
        first_W = torch.searchsorted(words_P, words_W).clamp(max=len(words_P) - 1)
        tokens_WD = z_ND.index_select(0, rows_P[first_W])
        return torch.where((words_P[first_W] == words_W)[:, None], tokens_WD, 0.0)
    tokens_PD = z_ND.index_select(0, rows_P)
    start_WD = tokens_PD.new_zeros(count, z_ND.shape[1])
    reduce = "mean" if pool == "mean" else "amax"
    return start_WD.scatter_reduce(0, words_P[:, None].expand_as(tokens_PD), tokens_PD, reduce, include_self=False)
