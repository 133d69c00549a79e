"""Heads that give each sequence one score: multiple choice and reranking.

    score = w · f(W pool(z) + b)        pool: the vector of [CLS], or the mean of the tokens

The trunk is that of a classifier with one output.

**Multiple choice** between endings (SWAG, Zellers et al. 2018; Devlin et al. 2019, §4.4): every ending e is paired with
the context c in one sequence. The softmax is over the endings of an example, however many:

    P(e | c) = exp score(c, e) / Σ_e' exp score(c, e')

An ending that is read in several windows has the mean of their scores; training is as in answering.

**Reranking**: the relevance of a passage to a query, read together by a cross-encoder (Nogueira & Cho 2019).

    score(q, d) = w · f(W z_CLS + b) + c        z_CLS of  [CLS] q [SEP] d [SEP]

`transformers` stores it as a classifier (`…ForSequenceClassification` with one label). What distinguishes the two is an
entry of config.json that `sentence-transformers` writes for its cross-encoders, and that states what is applied to a
score before it is shown (`activation`). A pair longer than the window is several sequences, and scores as the best of
them does. The losses are in `models/objectives/ranking.py`.

N tokens, B sequences, D hidden size; P endings of E examples, or P pairs of E lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.ranges import DropoutRate, Temperature, Weight
from larvatus.core.targets import ChoiceTargets, RelevanceTargets
from larvatus.metrics.calibration import sigmoid
from larvatus.models.heads.answering import segment_argmax, segment_cross_entropy
from larvatus.models.heads.head import Dense, FamilyHead, Head, HeadConfig, to_float32
from larvatus.models.heads.pooling import SUMMARIES, SummaryPool, owners, pooled_padded, segment_means, summary_tokens
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss
from larvatus.models.objectives.ranking import AnyRankingLoss, BinaryCrossEntropy


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


# Multiple choice.


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


# Reranking.

Activation = Literal["sigmoid", "none"]
MARKER = "sentence_transformers"
"""Entry of config.json that only cross-encoders have."""
OLD_MARKER = "sbert_ce_default_activation_function"
"""The same before version 4 of `sentence-transformers`."""
ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "none",
}
"""Their names of what is applied to a score."""


class RerankingConfig(SequenceScoreConfig, path="reranking: ", tag="reranking"):
    needs: ClassVar = RelevanceTargets
    suffix: ClassVar[str | None] = "ForSequenceClassification"
    stored_as: ClassVar[str | None] = "classification"
    labels: ClassVar[tuple[str]] = ("relevance",)

    activation: Activation = "sigmoid"
    """What is applied to a score before it is shown."""
    loss: AnyRankingLoss = BinaryCrossEntropy()
    """Loss that training minimises."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0
    bias: bool | UnsetType = UNSET
    """Whether the score has a bias, the default; false: only a vector of weights (GPT)."""

    def build(self, model: EncoderConfig, vocabulary: int) -> Reranking:
        return Reranking(self, model)

    def describe(self) -> str:
        return "the relevance of a passage to a query"

    def hf_fields(self) -> dict[str, Any]:
        names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        return {
            "id2label": {"0": self.labels[0]},
            "label2id": {self.labels[0]: 0},
            MARKER: {"activation_fn": names[self.activation]},
        }

    @classmethod
    def from_hf_fields(cls, labels: list[str], problem_type: str | None) -> dict[str, Any]:
        return {}

    @classmethod
    def settings_in_hf_fields(cls) -> frozenset[str]:
        return frozenset({"activation"})

    @classmethod
    def marked(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The activation that a cross-encoder's config.json states; None for any other model."""
        entry = config.get(MARKER)
        stated = entry.get("activation_fn") if isinstance(entry, Mapping) else config.get(OLD_MARKER)
        if stated is None:
            return None
        if stated not in ACTIVATIONS:
            known = " or ".join(ACTIVATIONS)
            raise ValueError(f"the activation of the scores is {stated}, and only {known} can be read")
        return {"activation": ACTIVATIONS[stated]}


class Reranking(SequenceScore):
    config: RerankingConfig

    def __init__(self, config: RerankingConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.classifier = nn.Linear(self.width, 1, bias=config.bias is not False)

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """[B, 1]."""
        if self.mix is not None:
            return super().padded_logits(z_BLD, mask_BL)
        return to_float32(self.classifier(self.trunk(pooled_padded(z_BLD, mask_BL, self.config.pool))))

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: lists."""
        return float(batch.targets[RelevanceTargets].count)

    def score_loss(self, scores_B1: Tensor, targets: RelevanceTargets[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from the scores of sequences: [B, 1] → [P], the best window of each pair → a sum over lists."""
        losses = self.config.loss(segment_maxima(scores_B1[:, 0], targets.windows), targets)
        count = torch.tensor(float(len(losses)), dtype=losses.dtype, device=losses.device)
        return Loss(total=losses.sum(), count=count, weight=self.config.weight)

    def shown(self, scores: Floats) -> Doubles:
        """Scores as people see them, with the activation: [P] → [P]; in float64, where a sigmoid keeps their order."""
        wide = scores.astype(np.float64)
        return wide if self.config.activation == "none" else sigmoid(wide)


def segment_maxima(x_N: Tensor, lengths_B: Tensor) -> Tensor:
    """The highest of each run: [N] → [B].

    >>> segment_maxima(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([2, 1])).tolist()
    [3.0, 2.0]
    """
    start_B = x_N.new_full((len(lengths_B),), -torch.inf)
    return start_B.scatter_reduce(0, owners(lengths_B, len(x_N)), x_N, "amax")
