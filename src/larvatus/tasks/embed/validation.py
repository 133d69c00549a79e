"""Validation of a sentence encoder, during and after training.

held = SentenceValidation(data, "scores", metric="spearman")
held.scores(model, scoring).main

The kind of the validation examples may differ from that of the training examples: a model trained on pairs, or by
distillation, may be selected on scored pairs. There is nothing to calibrate.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.targets import SentenceTargets
from larvatus.metrics.bootstrap import score_of_all
from larvatus.models.heads.text_head import TextHead
from larvatus.models.network import Network
from larvatus.tasks.embed.compared import ComparedTexts, DenseTexts, compared_texts
from larvatus.tasks.embed.encode import EncodedSentences, embedder_of
from larvatus.tasks.embed.examples import Rows
from larvatus.tasks.embed.metrics import sentence_metrics
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Calibration, Scores

LOSS_BATCH = 64
"""Examples of which a validation loss is computed together."""


@dataclass(frozen=True, eq=False)
class SentenceValidation:
    data: EncodedSentences
    rows: Rows
    metric: str
    has_loss: bool = False
    """Whether the training loss can be computed of these examples."""
    features: Features | None = None
    """Pooled texts of a frozen encoder; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> SentenceValidation:
        return dataclasses.replace(self, features=Features.build(model, _Texts(self.data), scoring))

    def texts(self, model: Network, scoring: ScoringOptions) -> ComparedTexts:
        """All texts, ready to be compared."""
        if self.features is None:
            return compared_texts(model, self.data, scoring)
        head = embedder_of(model)
        texts = np.arange(len(self.data.sequences))
        targets = self.data.alone(texts).targets[SentenceTargets].map(lambda array: torch.as_tensor(array))
        with torch.inference_mode():
            moved = targets.map(lambda tensor: tensor.to(scoring.device))
            vectors: Floats = head.vectors(self.features.of(texts), moved).float().cpu().numpy()
        return DenseTexts(vectors)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        texts = self.texts(model, scoring)
        metrics = sentence_metrics(texts, self.data, self.rows)
        values = {name: score_of_all(metric.rows, metric.score, metric.of) for name, metric in metrics.items()}
        # a correlation of cosines that are all equal is not defined, and counts as 0
        values = {name: value if math.isfinite(value) else 0.0 for name, value in values.items()}
        return Scores(metric=self.metric, values=values, validation_loss=self._loss(embedder_of(model), texts))

    def _loss(self, head: TextHead, texts: ComparedTexts) -> float:
        """The mean loss of batches of examples in their order; NaN where it is not of such examples."""
        if not self.has_loss:
            return math.nan
        losses = []
        for start in range(0, len(self.data), LOSS_BATCH):
            examples = np.arange(start, min(start + LOSS_BATCH, len(self.data)))
            targets = self.data.batch(examples).targets[SentenceTargets].map(lambda array: torch.as_tensor(array))
            losses.append(float(head.mean_loss(texts.tensors(self.data.texts_of(examples)), targets)) * len(examples))
        return sum(losses) / len(self.data)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        return Calibration()


@dataclass(frozen=True, eq=False)
class _Texts:
    """The different texts of a data set, by number."""

    data: EncodedSentences

    def __len__(self) -> int:
        return len(self.data.sequences)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        return self.data.alone(examples)
