"""Multiple choice between endings (SWAG, Zellers et al. 2018; Devlin et al. 2019, §4.4).

    score(c, e) = w · f(W z_CLS + b)        P(e | c) = exp score(c, e) / Σ_e' exp score(c, e')

Every ending e is paired with the context c in one sequence and gets one score, from its [CLS] (or the mean of
its tokens, depending on the family); the softmax is over the endings of an example, however many. An ending that is
read in several windows has the mean of their scores; training is as in answering. N tokens, B sequences, P endings, E
examples, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.ranges import Temperature, Weight
from larvatus.core.targets import ChoiceTargets
from larvatus.models.heads.answering import segment_argmax, segment_cross_entropy
from larvatus.models.heads.head import Dense, FamilyHead
from larvatus.models.heads.pooling import segment_means
from larvatus.models.heads.sequence_score import SequenceScore, SequenceScoreConfig
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


class MultipleChoiceConfig(SequenceScoreConfig, path="choosing: ", tag="choosing"):
    needs: ClassVar = ChoiceTargets
    suffix: ClassVar = "ForMultipleChoice"
    families: ClassVar = FAMILIES
    stores_labels: ClassVar = False  # endings have no names
    labels: ClassVar[tuple[str]] = ("score",)

    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> MultipleChoice:
        return MultipleChoice(self, model)

    def describe(self) -> str:
        return "a score for each ending"


class MultipleChoice(SequenceScore):
    config: MultipleChoiceConfig

    def __init__(self, config: MultipleChoiceConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.classifier = nn.Linear(self.width, 1)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: examples whose correct ending is known."""
        return float((batch.targets[ChoiceTargets].labels != IGNORE).sum())

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
