"""What a model that chooses is worth on held-out examples: accuracy, loss, temperature.

held = ChoiceValidation(data, metric="accuracy")
held.scores(model, scoring).main
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.pretraining_targets import IGNORE
from larvatus.models.network import Network
from larvatus.tasks.choose.encode import EncodedChoices, scores_by_example
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of, score_sequences
from larvatus.tasks.validation import Calibration, Scores, fit_calibration, mean_loss

METRICS = ("accuracy",)


@dataclass(frozen=True, eq=False)
class ChoiceValidation:
    data: EncodedChoices
    metric: str = "accuracy"
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> ChoiceValidation:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def _windows(self, model: Network, scoring: ScoringOptions) -> Floats:
        """Scores of each window: [S, 1]."""
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self._windows(model, scoring)
        right = scores_by_example(windows, self.data).argmax(-1) == self.data.labels
        return Scores(
            metric=self.metric,
            values={"accuracy": float(right.mean())},
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        known = self.data.labels != IGNORE
        logits = scores_by_example(self._windows(model, scoring), self.data)
        return fit_calibration(logits[known], self.data.labels[known], kind="softmax")
