"""What a classifier is worth on held-out texts.

    held = TextValidation(data, config, metric="matthews")
    held.scores(model, scoring).main

| what | metric that decides, where none is asked for |
| --- | --- |
| classes | accuracy; macro-f1 where a class has less than half of its even share |
| several labels | micro-f1 |
| a number | spearman |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.metrics.classification import accuracy_of, average, confusion, f1_by_class, matthews, multi_label
from larvatus.metrics.correlation import pearson, spearman
from larvatus.models.heads import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.classify.classify import LabelledTexts, Merge, merge_windows
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of, score_sequences
from larvatus.tasks.validation import Calibration, Scores, check_metric, fit_calibration, mean_loss


@dataclass(frozen=True, eq=False)
class TextValidation:
    data: LabelledTexts
    config: ClassificationConfig
    metric: str
    merge: Merge = "mean"
    features: Features | None = None
    """Features of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> TextValidation:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Network, scoring: ScoringOptions) -> Floats:
        return merge_windows(self._windows(model, scoring), self.data.sequences.parts, self.merge)

    def _windows(self, model: Network, scoring: ScoringOptions) -> Floats:
        """Scores of each window: [S, K]."""
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self._windows(model, scoring)
        return Scores(
            metric=self.metric,
            values=class_metrics(
                self.data.unknown.added_to(self.data.labels, known=len(self.config.labels)),
                merge_windows(windows, self.data.sequences.parts, self.merge),
                self.config,
            ),
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        if self.config.kind == "regression":
            return Calibration()
        if self.config.kind == "multi-label":
            return fit_calibration(self.logits(model, scoring), self.data.labels, kind="sigmoid")
        known = self.data.labels != IGNORE
        return fit_calibration(self.logits(model, scoring)[known], self.data.labels[known], kind="softmax")


def class_metrics(gold: npt.NDArray[np.generic], scores: Floats, config: ClassificationConfig) -> dict[str, float]:
    """All metrics of a kind of classification, from scores [E, K]; gold classes from K on are wrong in any case."""
    if config.kind == "regression":
        numbers, wanted = scores[:, 0].astype(np.float64), np.asarray(gold, np.float64)
        error = float(np.sqrt(np.mean((numbers - wanted) ** 2)))
        return {"spearman": spearman(numbers, wanted), "pearson": pearson(numbers, wanted), "rmse": error}
    if config.kind == "multi-label":
        several = multi_label(gold, np.pad(scores >= 0, ((0, 0), (0, gold.shape[1] - scores.shape[1]))))
        return {
            "micro-f1": several.micro.f1,
            "macro-f1": several.macro.f1,
            "exact-match": several.exact_match,
            "hamming": several.hamming,
        }
    classes = max(len(config.labels), int(np.max(gold, initial=0)) + 1)
    table = confusion(gold, scores.argmax(-1), classes=classes)
    counts = f1_by_class(table)
    values = {"accuracy": accuracy_of(table), "macro-f1": average(counts, "macro").f1, "matthews": matthews(table)}
    if len(config.labels) == 2:
        values["f1"] = counts.of(1).f1  # of the second class, as benchmarks of paraphrases count it
    return values


def text_metric(config: ClassificationConfig, counts: Sequence[int], asked: str | None = None) -> str:
    """The metric that decides; `counts` are the training examples of each class."""
    known = {
        "multi-class": ["accuracy", "macro-f1", "matthews", *(["f1"] if len(config.labels) == 2 else [])],
        "multi-label": ["micro-f1", "macro-f1", "exact-match"],
        "regression": ["spearman", "pearson"],
    }[config.kind]
    if asked is not None:
        return check_metric(asked, known)
    if config.kind == "multi-class" and min(counts) < sum(counts) / len(counts) / 2:
        return "macro-f1"
    return known[0]
