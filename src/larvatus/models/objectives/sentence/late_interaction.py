"""Late interaction: a text is the vectors of its tokens, and two texts are compared token by token (ColBERT, Khattab &
Zaharia 2020, eq. 3; ColBERTv2, Santhanam et al. 2022).

    MaxSim(q, d) = Σ_i max_j  q_i · d_j        i over the tokens of the query, j over those of the document

Vectors have length 1. Every token of the query looks for its best counterpart, so the score is not symmetric, and at
most the number of the query's tokens. Any loss of scores takes it: in-batch negatives are

    texts = TokenVectors(x_ND, lengths_T)
    MultipleNegatives(scale=1.0)(texts, targets)

Nothing is padded: the tokens of all texts are rows of one matrix, and the maximum is that of a segment of rows. The
matrix of all tokens with all tokens never exists as a whole: it is computed in blocks, which the backward pass computes
again. N tokens of Q queries, M tokens of C documents, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from larvatus.core.batch import edges, runs
from larvatus.models.objectives.sentence.losses import TextVectors

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
