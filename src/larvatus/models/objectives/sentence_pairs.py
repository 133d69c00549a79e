"""Two classes for a sequence of two segments, from its [CLS] vector: next-sentence and sentence-order prediction.

    y = softmax(W h)            h = z_CLS as in the chapter, or tanh(W z_CLS + b), the pooler of released models

Next-sentence prediction (Devlin et al. 2019; chapter §11.2.2): does the second segment really follow the first? Label
0: it follows; 1: it was sampled at random.

Sentence-order prediction (ALBERT, Lan et al. 2020, §3.1): are the two segments in the order of the text? Label 0: in
order; 1: swapped, as in the released code. Both segments are neighbours in one document, so topic, which answers most
of next-sentence prediction, does not help.

The first token of each sequence is [CLS]. N tokens, B sequences, D hidden size.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import OrderLabels, PairLabels, SequenceLabels
from larvatus.core.ranges import Weight, check_ranges
from larvatus.core.settings import Settings
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss


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


class NextSentenceConfig(PairClassifierConfig, tag_field="type", tag="next-sentence"):
    needs: ClassVar = PairLabels

    def build(self, model: EncoderConfig, vocabulary: int) -> NextSentence:
        return NextSentence(self, model)


class NextSentence(PairClassifier):
    needs = PairLabels


class SentenceOrderConfig(PairClassifierConfig, tag_field="type", tag="sentence-order"):
    needs: ClassVar = OrderLabels

    def build(self, model: EncoderConfig, vocabulary: int) -> SentenceOrder:
        return SentenceOrder(self, model)


class SentenceOrder(PairClassifier):
    needs = OrderLabels
