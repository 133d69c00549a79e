"""The relevance of a passage to a query, read together: a cross-encoder (Nogueira & Cho 2019).

    score(q, d) = w · f(W z_CLS + b) + c        z_CLS of  [CLS] q [SEP] d [SEP]

It is the head of a classifier with one output, and `transformers` stores it as such (`…ForSequenceClassification` with
one label). What distinguishes the two is an entry of config.json that `sentence-transformers` writes for its
cross-encoders, and that states what is applied to a score before it is shown (`activation`).

A pair longer than the window is several sequences, and scores as the best of them does. What is minimised is one of
`models/objectives/ranking.py`. N tokens, B sequences, P pairs, E lists, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.arrays import Doubles, Floats
from larvatus.core.batch import TrainingBatch
from larvatus.core.ranges import Temperature, Weight
from larvatus.core.targets import RelevanceTargets
from larvatus.metrics.calibration import sigmoid
from larvatus.models.heads.head import to_float32
from larvatus.models.heads.pooling import owners, pooled_padded
from larvatus.models.heads.sequence_score import SequenceScore, SequenceScoreConfig
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.loss import Loss
from larvatus.models.objectives.ranking import AnyRankingLoss, BinaryCrossEntropy

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
