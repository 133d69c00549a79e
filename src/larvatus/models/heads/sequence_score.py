"""What heads have in common that give each sequence one score: multiple choice and reranking.

    score = w · f(W pool(z) + b)        pool: the vector of [CLS], or the mean of the tokens

The trunk is that of a classifier with one output. N tokens, B sequences, D hidden size.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.ranges import DropoutRate
from larvatus.models.heads.head import Dense, Head, HeadConfig, to_float32
from larvatus.models.heads.pooling import SUMMARIES, SummaryPool, segment_means, summary_tokens


class SequenceScoreConfig(HeadConfig):
    """Settings from the tokens of a sequence to its score."""

    pool: Literal["cls", "last", "mean"] = "cls"
    """Pooling of a sequence, both texts of a pair: the vector of the first token ([CLS]), of the last, or the mean."""
    dense: Dense = "tanh"
    """The layer between that vector and the score, as in the model's family; none: one linear layer only."""
    dense_norm: bool = False
    """A norm after it (ModernBERT)."""
    dropout: DropoutRate = 0.1
    """Dropout on the input of the score."""
    mix: bool = False
    """A learned mix of all layers instead of the last (ELMo)."""


class SequenceScore(Head):
    """A head that scores each sequence."""

    config: SequenceScoreConfig
    classifier: nn.Linear

    @property
    def summary(self) -> SummaryPool | None:
        pool = self.config.pool
        return pool if pool != "mean" and self.mix is None else None

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each sequence is a row."""
        return np.ones(tokens.count, np.int64)

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The pooled vector of each sequence: [N, D] → [B, D]."""
        lengths_B, pool = batch.tokens.lengths, self.config.pool
        return summary_tokens(z_ND, lengths_B, pool) if pool in SUMMARIES else segment_means(z_ND, lengths_B)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The score of each sequence from features: [B, D] (or a stack of layers) → [B, 1]."""
        return to_float32(self.classifier(self.trunk(x)))
