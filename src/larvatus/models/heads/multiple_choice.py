"""Multiple choice between endings (SWAG, Zellers et al. 2018; Devlin et al. 2019, §4.4).

    score(c, e) = w · f(W z_CLS + b)        P(e | c) = exp score(c, e) / Σ_e' exp score(c, e')

Every ending e is paired with the context c in one sequence and gets one score, from its [CLS] (or the mean of
its tokens, depending on the family); the softmax is over the endings of an example, however many. An ending that is
read in several windows has the mean of their scores; training is as in answering. N tokens, B sequences, P endings, E
examples, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.ranges import DropoutRate, Temperature, Weight
from larvatus.core.targets import ChoiceTargets
from larvatus.models.heads.answering import segment_argmax, segment_cross_entropy
from larvatus.models.heads.head import Dense, FamilyHead, Head, HeadConfig, to_float32
from larvatus.models.heads.pooling import SUMMARIES, SummaryPool, summary_tokens
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.loss import Loss


def _family(
    dense: str, activation: Dense = "tanh", *, field: str | None = None, dropout: float | None = None
) -> FamilyHead:
    """A family that reads [CLS] through a layer called `dense`; `field` of config.json states the dropout after it."""
    return FamilyHead(
        names={"dense": dense, "classifier": "classifier"},
        fixed={"pool": "cls", "dense": activation, "dense_norm": False, "mix": False},
        fields={} if field is None else {"dropout": field},
        dropout=dropout,
    )


FAMILIES: Mapping[str, FamilyHead] = {
    "Bert": _family("bert.pooler.dense", field="classifier_dropout"),
    "Roberta": _family("roberta.pooler.dense"),
    "XLMRoberta": _family("roberta.pooler.dense"),
    "Electra": _family("sequence_summary.summary", "gelu", field="summary_last_dropout", dropout=0.1),
    "Albert": _family("albert.pooler", field="classifier_dropout_prob", dropout=0.1),
    "DistilBert": _family("pre_classifier", "relu", field="seq_classif_dropout", dropout=0.2),
    "MPNet": _family("mpnet.pooler.dense"),
    "ModernBert": FamilyHead(
        names={"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"},
        fixed={"dense": "gelu", "dense_norm": True, "mix": False},
        fields={"dropout": "classifier_dropout", "pool": "classifier_pooling"},
        dropout=0.0,
    ),
}


class MultipleChoiceConfig(HeadConfig, path="choosing: ", tag="choosing"):
    needs: ClassVar = ChoiceTargets
    suffix: ClassVar = "ForMultipleChoice"
    families: ClassVar = FAMILIES
    stores_labels: ClassVar = False  # endings have no names
    labels: ClassVar[tuple[str]] = ("score",)

    pool: Literal["cls", "last", "mean"] = "cls"
    """Pooling of a context with an ending: the vector of the first token ([CLS]), of the last, or the mean."""
    dense: Dense = "tanh"
    """The layer between that vector and the score, as in the model's family; none: one linear layer only."""
    dense_norm: bool = False
    """A norm after it (ModernBERT)."""
    dropout: DropoutRate = 0.1
    """Dropout on the input of the score."""
    mix: bool = False
    """A learned mix of all layers instead of the last (ELMo)."""
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> MultipleChoice:
        return MultipleChoice(self, model)

    def describe(self) -> str:
        return "a score for each ending"


class MultipleChoice(Head):
    needs = ChoiceTargets
    config: MultipleChoiceConfig

    def __init__(self, config: MultipleChoiceConfig, model: EncoderConfig) -> None:
        super().__init__(
            model, mix=config.mix, dropout=config.dropout, dense=config.dense, dense_norm=config.dense_norm
        )
        self.config = config
        self.classifier = nn.Linear(model.hidden, 1)

    @property
    def summary(self) -> SummaryPool | None:
        pool = self.config.pool
        return pool if pool != "mean" and self.mix is None else None

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each sequence is a row."""
        return np.ones(tokens.count, np.int64)

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The pooled vector of each sequence: [N, D] → [B, D]."""
        lengths_B = batch.tokens.lengths
        pool = self.config.pool
        return summary_tokens(z_ND, lengths_B, pool) if pool in SUMMARIES else segment_means(z_ND, lengths_B)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The score of each sequence from features: [B, D] (or a stack of layers) → [B, 1]."""
        return to_float32(self.classifier(self.trunk(x)))

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: examples whose correct ending is known."""
        return float((batch.targets[ChoiceTargets].labels != IGNORE).sum())

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        return self.score_loss(self.logits(x, batch), batch.targets[ChoiceTargets], accuracy=accuracy)

    def score_loss(self, scores_B1: Tensor, targets: ChoiceTargets[Tensor], *, accuracy: bool = False) -> Loss:
        """Cross-entropy over the endings of each example, from the scores of their windows."""
        known_E = targets.labels != IGNORE
        places_E1 = targets.labels.clamp(min=0)[:, None]
        scores_P1 = segment_means(scores_B1, targets.windows)
        losses_E = segment_cross_entropy(scores_P1, places_E1, targets.endings)[:, 0]
        right = None
        if accuracy:
            right = ((segment_argmax(scores_P1, targets.endings) == places_E1)[:, 0] & known_E).sum()
        return Loss(
            total=torch.where(known_E, losses_E, 0.0).sum(),
            count=known_E.sum().to(losses_E.dtype),
            correct=right,
            weight=self.config.weight,
        )


def segment_means(x_NK: Tensor, lengths_B: Tensor) -> Tensor:
    """Means of runs of rows: [N, K] → [B, K].

    >>> segment_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([2, 1])).tolist()
    [[2.0], [5.0]]
    """
    owner_N = torch.repeat_interleave(
        torch.arange(len(lengths_B), device=x_NK.device), lengths_B, output_size=len(x_NK)
    )
    sums_BK = x_NK.new_zeros(len(lengths_B), x_NK.shape[1]).index_add(0, owner_N, x_NK)
    return sums_BK / lengths_B[:, None].to(sums_BK.dtype)
