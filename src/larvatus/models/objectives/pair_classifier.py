"""Two classes for a sequence of two segments, told from its [CLS] vector: what next-sentence and sentence-order share.

    y = softmax(W h)            h = z_CLS, or tanh(W z_CLS + b), the pooler of released models

The first token of each sequence is [CLS]. N tokens, B sequences, D hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import SequenceLabels
from larvatus.core.ranges import Weight, check_ranges
from larvatus.core.settings import Settings
from larvatus.models.nn.buckets import IGNORE
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.loss import Loss


class PairClassifierConfig(Settings):
    pooler: bool = True
    """Through BERT's tanh pooler, as released; false: on the raw [CLS] vector, as the chapter writes it."""
    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.__struct_config__.tag}: ", RecipeError)


class Pooler(nn.Module):
    """tanh(W z + b) of the first token, the vector that released BERTs classify."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, z_BD: Tensor) -> Tensor:
        return torch.tanh(self.dense(z_BD))


def first_tokens(z_ND: Tensor, lengths_B: Tensor) -> Tensor:
    """The vector of each sequence's first token: [N, D] → [B, D]. An empty (filler) one gets another's."""
    starts_B = lengths_B.cumsum(0) - lengths_B
    return z_ND.index_select(0, starts_B.clamp(max=z_ND.shape[0] - 1))


class PairClassifier(nn.Module):
    needs: type[SequenceLabels[Any]]

    def __init__(self, config: PairClassifierConfig, model: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.pooler = Pooler(model.hidden) if config.pooler else nn.Identity()
        self.classifier = nn.Linear(model.hidden, 2)

    def logits(self, z_ND: Tensor, lengths_B: Tensor) -> Tensor:
        """Scores of label 0 (as in the text) and label 1: [N, D] → [B, 2]."""
        scores_B2: Tensor = self.classifier(self.pooler(first_tokens(z_ND, lengths_B)))
        return scores_B2

    def forward(
        self, z_ND: Tensor, targets: SequenceLabels[Tensor], lengths_B: Tensor, *, accuracy: bool = False
    ) -> Loss:
        scores_B2 = self.logits(z_ND, lengths_B)
        labels_B = targets.labels
        return Loss(
            total=F.cross_entropy(scores_B2, labels_B, reduction="sum", ignore_index=IGNORE),
            count=(labels_B != IGNORE).sum(),
            correct=(scores_B2.argmax(-1) == labels_B).sum() if accuracy else None,
            weight=self.config.weight,
        )

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        loss: Loss = self(z_ND, batch.targets[self.needs], batch.tokens.lengths, accuracy=accuracy)
        return loss
