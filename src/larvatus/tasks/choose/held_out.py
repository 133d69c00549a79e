"""What a model that chooses is worth on held-out examples: accuracy, loss, temperature.

held = HeldOutChoices(data, metric="accuracy")
held.scores(model, scoring).main
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.pretraining_targets import IGNORE
from larvatus.models.network import Network
from larvatus.tasks.choose.encode import Choices, side_by_side
from larvatus.tasks.features import Features
from larvatus.tasks.held_out import Calibration, Scores, calibration, mean_loss
from larvatus.tasks.scoring import Scoring, head_of, score_sequences

METRICS = ("accuracy",)


@dataclass(frozen=True, eq=False)
class HeldOutChoices:
    data: Choices
    metric: str = "accuracy"
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: Scoring) -> HeldOutChoices:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def _windows(self, model: Network, scoring: Scoring) -> Floats:
        """Scores of each window: [S, 1]."""
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: Scoring) -> Scores:
        windows = self._windows(model, scoring)
        right = side_by_side(windows, self.data).argmax(-1) == self.data.labels
        return Scores(
            metric=self.metric,
            values={"accuracy": float(right.mean())},
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: Scoring) -> Calibration:
        known = self.data.labels != IGNORE
        logits = side_by_side(self._windows(model, scoring), self.data)
        return calibration(logits[known], self.data.labels[known], kind="softmax")
