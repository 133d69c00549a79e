"""Classifying texts and pairs of texts (Devlin et al. 2019; chapter §11.4.1 and 11.4.2, eq. 11.13).

    y = softmax(W_C h)        h = z_CLS as in the chapter, or f(W z_CLS + b), the pooler of released models

`pool` is [CLS], or the mean or maximum over a sequence's tokens; for a pair the vectors of both orders may be added.
There are also multi-label classification (a sigmoid for each label) and regression. Classes may be weighted, easy
examples down-weighted (focal loss, Lin et al. 2017: (1 − p)^γ), and targets smoothed (Szegedy et al. 2016). N tokens, B
sequences, D hidden size, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import DropoutRate, Focal, SizeOrNone, Temperature, Weight
from larvatus.core.targets import ClassTargets
from larvatus.models.heads.head import Dense, Head, HeadConfig, to_float32
from larvatus.models.heads.pooling import SUMMARIES, SummaryPool, owners, pooled_padded, summary_tokens
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.lstm import BiLSTM
from larvatus.models.objectives.linear_cross_entropy import Loss

Kind = Literal["multi-class", "multi-label", "regression"]
PROBLEM_TYPES: dict[Kind, str] = {
    "multi-class": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
"""The `problem_type` of `transformers`."""


class ClassificationConfig(HeadConfig, path="classification: ", tag="classification"):
    needs: ClassVar = ClassTargets
    suffix: ClassVar[str | None] = "ForSequenceClassification"

    labels: tuple[str, ...]
    """Names of the classes; for regression, its one name."""
    kind: Kind = "multi-class"
    """One of the classes, any of them at once, or a number."""
    pool: Literal["cls", "last", "mean", "max"] = "cls"
    """Pooling of a sequence: the vector of its first token ([CLS]), of its last, or the mean or maximum of all."""
    dense: Dense = "tanh"
    """The layer between that vector and the classes, as in the model's family; none: only the chapter's W_C."""
    dense_norm: bool = False
    """A norm after it (ModernBERT)."""
    dropout: DropoutRate = 0.1
    """Dropout on the input of the classifier."""
    mix: bool | str = False
    """A learned mix of all layers instead of the last (ELMo), or the layers to read (`models/nn/layer_mix.py`)."""
    class_weights: tuple[Weight, ...] = ()
    """Weight of an example of each class; with several labels, the weight of a yes."""
    focal: Focal = 0.0
    """γ of the focal loss."""
    smoothing: DropoutRate = 0.0
    """Share of the target that is spread over all classes."""
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0
    lstm: SizeOrNone | UnsetType = UNSET
    """Size of a bidirectional LSTM over the tokens, in each direction, before pooling; 0 or unset: none."""
    bias: bool | UnsetType = UNSET
    """Whether the classifier has a bias, the default; false: only a matrix (GPT)."""
    both_orders: bool | UnsetType = UNSET
    """Whether a pair is two sequences, one in either order, whose vectors are added (GPT on similarity)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) < (2 if self.kind == "multi-class" else 1) or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"classification needs at least two classes, each named once, not {list(self.labels)}")
        if self.kind == "regression" and (len(self.labels) > 1 or self.focal or self.smoothing or self.class_weights):
            raise UsageError("regression has one number, and neither class weights, focal loss nor smoothing")
        if self.class_weights and len(self.class_weights) != len(self.labels):
            raise UsageError(f"{len(self.labels)} classes, but {len(self.class_weights)} class weights; give one each")
        if self.mix and self.pool == "max":
            raise UsageError("a mix of layers is pooled by cls, last or mean, not max")
        if self.mix and self.lstm:
            raise UsageError("a BiLSTM over the tokens reads the last layer; leave out either lstm or layers")

    def build(self, model: EncoderConfig, vocabulary: int) -> Classification:
        return Classification(self, model)

    def hf_fields(self) -> dict[str, Any]:
        return {**super().hf_fields(), "problem_type": PROBLEM_TYPES[self.kind]}

    @classmethod
    def from_hf_fields(cls, labels: list[str], problem_type: str | None) -> dict[str, Any]:
        ours = {theirs: kind for kind, theirs in PROBLEM_TYPES.items()}
        usual = "regression" if len(labels) == 1 else "multi-class"
        return {"labels": labels, "kind": ours[problem_type] if problem_type else usual}

    @classmethod
    def settings_in_hf_fields(cls) -> frozenset[str]:
        return frozenset({"labels", "kind"})

    def describe(self) -> str:
        what = {"multi-class": "classes", "multi-label": "labels", "regression": "number"}[self.kind]
        orders = ", of pairs in both orders" if self.both_orders else ""
        return f"{len(self.labels):,} {what}{f', BiLSTM of {self.lstm}' if self.lstm else ''}{orders}"


class Classification(Head):
    config: ClassificationConfig

    def __init__(self, config: ClassificationConfig, model: EncoderConfig) -> None:
        lstm = BiLSTM(size=model.hidden, hidden=config.lstm) if config.lstm else None
        super().__init__(config, model, read=lstm.width if lstm is not None else None)
        self.lstm = lstm
        self.classifier = nn.Linear(self.width, len(config.labels), bias=config.bias is not False)

    @property
    def summary(self) -> SummaryPool | None:
        pool = self.config.pool
        alone = self.mix is None and self.lstm is None
        return pool if (pool == "cls" or pool == "last") and alone else None

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each sequence is a row; the two orders of a pair share the row of the first."""
        rows = np.ones(tokens.count, np.int64)
        if self.config.both_orders:
            rows[1::2] = 0
        return rows

    def added(self, x: Tensor) -> Tensor:
        """[2 B, D] → [B, D] if pairs are read in both orders."""
        return x[0::2] + x[1::2] if self.config.both_orders else x

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The pooled vector of each sequence, or of the two of a pair: [N, D] → [B, D]."""
        return self.added(self._each(z_ND, batch))

    def _each(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        lengths_B = batch.tokens.lengths
        if self.lstm is not None:
            z_ND = self.lstm(z_ND, lengths_B)
        if self.config.pool in SUMMARIES:
            return summary_tokens(z_ND, lengths_B, self.config.pool)
        reduce = "mean" if self.config.pool == "mean" else "amax"
        start_BD = z_ND.new_zeros(len(lengths_B), z_ND.shape[1])
        index_ND = owners(lengths_B, len(z_ND))[:, None].expand_as(z_ND)
        return start_BD.scatter_reduce(0, index_ND, z_ND, reduce, include_self=False)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of the classes from features: [B, D] (or a stack of layers) → [B, K]."""
        return to_float32(self.classifier(self.trunk(x)))

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """[B, K]."""
        if self.mix is not None or self.lstm is not None or self.config.both_orders is True:
            return super().padded_logits(z_BLD, mask_BL)
        return to_float32(self.classifier(self.trunk(pooled_padded(z_BLD, mask_BL, self.config.pool))))

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: texts, each counted with the weight of its class."""
        targets: ClassTargets[Any] = batch.targets[ClassTargets]
        return float(self._weights(torch.as_tensor(targets.labels), torch.as_tensor(targets.weights)).sum())

    def _weights(self, labels: Tensor, weights_B: Tensor) -> Tensor:
        """[B] the weight of each sequence."""
        if self.config.kind != "multi-class" or not self.config.class_weights:
            return weights_B
        return weights_B * torch.tensor(self.config.class_weights, device=labels.device)[labels]

    def score_loss(self, scores_BK: Tensor, targets: ClassTargets[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from scores of the classes; targets are those of sequences."""
        if self.config.both_orders:
            targets = targets.map(lambda array: array[0::2])
        losses_B = _LOSSES[self.config.kind](scores_BK, targets.labels, self.config)
        weights_B = self._weights(targets.labels, targets.weights).to(losses_B.dtype)
        right = None
        if accuracy and self.config.kind == "multi-class":
            right = (scores_BK.argmax(-1) == targets.labels).sum()
        return Loss(
            total=(losses_B * weights_B).sum(),
            count=weights_B.sum(),
            correct=right,
            weight=self.config.weight,
        )

    def probabilities(self, logits_BK: Tensor) -> Tensor:
        """Calibrated probabilities: those of classes sum to 1, those of labels are independent; a number stays
        unchanged.
        """
        if self.config.kind == "regression":
            return logits_BK
        scaled = logits_BK / self.config.temperature
        return torch.softmax(scaled, -1) if self.config.kind == "multi-class" else torch.sigmoid(scaled)


def _classes(scores_BK: Tensor, labels_B: Tensor, config: ClassificationConfig) -> Tensor:
    """Cross-entropy of each sequence; with γ, times (1 − p)^γ."""
    losses_B = F.cross_entropy(scores_BK, labels_B, reduction="none", label_smoothing=config.smoothing)
    if config.focal:
        p_B = torch.softmax(scores_BK, -1).gather(1, labels_B[:, None]).squeeze(1)
        losses_B = losses_B * _hardness(p_B, config.focal)
    return losses_B


def _labels(scores_BK: Tensor, labels_BK: Tensor, config: ClassificationConfig) -> Tensor:
    """Mean binary cross-entropy of each sequence's labels."""
    yes_BK = labels_BK.to(scores_BK.dtype)
    soft_BK = yes_BK * (1 - config.smoothing) + config.smoothing / 2
    yes = scores_BK.new_tensor(config.class_weights) if config.class_weights else None
    losses_BK = F.binary_cross_entropy_with_logits(scores_BK, soft_BK, reduction="none", pos_weight=yes)
    if config.focal:
        p_BK = torch.where(yes_BK > 0, torch.sigmoid(scores_BK), torch.sigmoid(-scores_BK))
        losses_BK = losses_BK * _hardness(p_BK, config.focal)
    return losses_BK.mean(-1)


def _hardness(p: Tensor, focal: float) -> Tensor:
    """(1 − p)^γ; kept off 0, where its slope is infinite for γ < 1."""
    return (1 - p).clamp(min=torch.finfo(p.dtype).eps) ** focal


def _number(scores_B1: Tensor, labels_B: Tensor, config: ClassificationConfig) -> Tensor:
    return (scores_B1.squeeze(-1) - labels_B.to(scores_B1.dtype)) ** 2


_LOSSES: dict[Kind, Callable[[Tensor, Tensor, ClassificationConfig], Tensor]] = {
    "multi-class": _classes,
    "multi-label": _labels,
    "regression": _number,
}
