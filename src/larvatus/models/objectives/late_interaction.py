"""Scores of texts that are vectors of tokens (late interaction) or weights of the vocabulary (SPLADE).

    MultipleNegatives(scale=1.0)(TokenVectors(x_ND, lengths_T), targets)
    Splade(inner=MultipleNegatives(scale=1.0), query_weight=5e-5, document_weight=3e-5)(x_TV, targets, progress=0.2)

**Late interaction** compares two texts token by token (ColBERT, Khattab & Zaharia 2020, eq. 3; ColBERTv2, Santhanam et
al. 2022):

    MaxSim(q, d) = Σ_i max_j  q_i · d_j        i over the tokens of the query, j over those of the document

Vectors have length 1. Every token of the query looks for its best counterpart, so the score is not symmetric, and at
most the number of the query's tokens. Any loss of scores takes it, such as in-batch negatives. Nothing is padded: the
tokens of all texts are rows of one matrix, and the maximum is that of a segment of rows. The matrix of all tokens with
all tokens never exists as a whole: it is computed in blocks, which the backward pass computes again.

**SPLADE** learns sparse vectors over the vocabulary with any loss of scores (Formal et al. 2021a; max pooling: SPLADE
v2, Formal et al. 2021b, eq. 6). `models/heads/sparse.py` computes w.

    w_j = max_i log(1 + relu(logit_ij))                   i over the tokens of a text, j over the vocabulary
    score(q, d) = w(q) · w(d)
    L = L_inner + λ_q(t) FLOPS(queries) + λ_d(t) FLOPS(documents)
    FLOPS(B) = Σ_j (1/|B| Σ_{i∈B} w_ij)²                  Paria et al. 2020, eq. 4
    λ(t) = λ · min(1, t / warm_up)²                       t: share of the training steps that are done

FLOPS is the mean number of products of a search: it makes words rare that are in most texts. Its weight starts at 0 and
grows quadratically, because a model that is made sparse at once learns nothing (Formal et al. 2021a, §3.4). The first
text of an example is a query, all others are documents; texts without a partner are documents.

N tokens of Q queries, M tokens of C documents, D size of a vector; T texts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from larvatus.core.batch import edges, runs
from larvatus.core.ranges import PositiveShare, Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence_losses import (
    MultipleNegatives,
    PlainLoss,
    SentenceLoss,
    Texts,
    TextVectors,
)

NUMBERS = 1 << 23
"""Products of tokens that are in memory at once: 32 MiB."""


@dataclass(frozen=True, eq=False)
class TokenVectors(TextVectors):
    """T texts as the vectors of their tokens, end to end."""

    x_ND: Tensor
    """[N, D] unit vectors."""
    lengths_T: Tensor
    """[T] tokens of each text, on the CPU."""

    @property
    def device(self) -> torch.device:
        return self.x_ND.device

    def __len__(self) -> int:
        return len(self.lengths_T)

    def __getitem__(self, texts: Tensor) -> TokenVectors:
        chosen = texts.cpu()
        lengths = self.lengths_T[chosen]
        firsts = (torch.cumsum(self.lengths_T, 0) - self.lengths_T)[chosen]
        skipped = torch.repeat_interleave(firsts - (torch.cumsum(lengths, 0) - lengths), lengths)
        rows_N = (torch.arange(len(skipped)) + skipped).to(self.device)
        return TokenVectors(self.x_ND.index_select(0, rows_N), lengths)

    def float(self) -> TokenVectors:
        return TokenVectors(self.x_ND.float(), self.lengths_T)

    def scores(self, others: TokenVectors) -> Tensor:
        return maxsim(self, others)

    def paired_scores(self, others: TokenVectors) -> Tensor:
        pairs = [maxsim(self[n], others[n])[0, 0] for n in torch.arange(len(self)).split(1)] if len(self) else []
        return torch.stack(pairs) if pairs else self.x_ND.new_zeros(0)

    def cosines(self, others: TokenVectors) -> Tensor:
        """The mean of a query's maxima, instead of their sum."""
        return maxsim(self, others) / self.lengths_T.clamp(min=1).to(self.device)[:, None]


def maxsim(queries: TokenVectors, documents: TokenVectors) -> Tensor:
    """[Q, C] the score of each query with each document; 0 where one of them has no token."""
    rows = []
    for some in _blocks(queries, NUMBERS // 256):
        most = max(1, NUMBERS // max(1, len(some.x_ND)))
        parts = [_checkpointed(some, block) for block in _blocks(documents, most)]
        rows.append(torch.cat(parts, 1) if parts else some.x_ND.new_zeros(len(some), 0))
    return torch.cat(rows) if rows else queries.x_ND.new_zeros(0, len(documents))


def _blocks(texts: TokenVectors, most: int) -> Iterator[TokenVectors]:
    """Texts in blocks of at most `most` tokens, or of one text that has more."""
    starts = edges(texts.lengths_T.numpy()).tolist()
    for first, last in runs(texts.lengths_T.numpy(), most):
        yield TokenVectors(texts.x_ND[starts[first] : starts[last]], texts.lengths_T[first:last])


def _checkpointed(queries: TokenVectors, documents: TokenVectors) -> Tensor:
    given = (queries.x_ND, queries.lengths_T, documents.x_ND, documents.lengths_T)
    if not torch.is_grad_enabled():
        return _block_scores(*given)
    scores: Tensor = checkpoint(_block_scores, *given, use_reentrant=False)
    return scores


def _block_scores(q_ND: Tensor, lengths_Q: Tensor, d_MD: Tensor, lengths_C: Tensor) -> Tensor:
    """MaxSim of one block: [N, D], [M, D] → [Q, C]."""
    products_MN = d_MD @ q_ND.T
    best_CN = torch.segment_reduce(products_MN, "max", lengths=lengths_C.to(q_ND.device), axis=0, initial=-torch.inf)
    best_CN = best_CN.masked_fill((lengths_C == 0).to(q_ND.device)[:, None], 0.0)
    owner_N = torch.repeat_interleave(torch.arange(len(lengths_Q)), lengths_Q).to(q_ND.device)
    return best_CN.new_zeros(len(lengths_Q), len(lengths_C)).index_add(0, owner_N, best_CN.T)


# SPLADE.


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
