"""What a model is worth on held-out examples, while it learns and afterwards: scores, metrics, temperature.

    held = HeldOutTexts(data, metric="matthews")
    held.scores(model, scoring).main

| what | metric that decides, where none is asked for |
| --- | --- |
| classes | accuracy; macro-f1 where a class has less than half of its even share |
| several labels | micro-f1 |
| a number | spearman |
| tags of entities | entity-f1, read leniently as `conlleval` does |
| other tags | accuracy of words |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.batch import Ints, edges
from larvatus.errors import UsageError, did_you_mean
from larvatus.metrics.calibration import Kind, fit_temperature, reliability_of, sigmoid, softmax
from larvatus.metrics.classification import accuracy_of, average, confusion, f1_by_class, matthews, multi_label
from larvatus.metrics.correlation import pearson, spearman
from larvatus.metrics.entities import tag_f1
from larvatus.nn.buckets import IGNORE
from larvatus.objectives import ClassificationConfig, Pretraining, Tagging, TaggingConfig
from larvatus.tasks.classify import LabelledTexts, Merge, class_scores, merged
from larvatus.tasks.features import Features
from larvatus.tasks.loop import Scores
from larvatus.tasks.scoring import Floats, Head, Scoring, head_of, score_sequences
from larvatus.tasks.tag import TaggedWords, decode, words_read


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A temperature, and the expected calibration error without it and with it; NaN where there is nothing to fit.

    The error with it is measured on each half of the examples with a temperature fitted on the other half.
    """

    temperature: float = 1.0
    before: float = math.nan
    after: float = math.nan


class HeldOut(Protocol):
    """Examples that a model is scored on."""

    @property
    def metric(self) -> str:
        """The one that decides."""

    def scores(self, model: Pretraining, scoring: Scoring) -> Scores: ...

    def calibration(self, model: Pretraining, scoring: Scoring) -> Calibration:
        """By what scores must be divided so that probabilities are right on average."""

    def read_once(self, model: Pretraining, scoring: Scoring) -> HeldOut:
        """The same, for models with this encoder, which is then not run again."""


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    data: LabelledTexts
    config: ClassificationConfig
    metric: str
    merge: Merge = "mean"
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Pretraining, scoring: Scoring) -> HeldOutTexts:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Pretraining, scoring: Scoring) -> Floats:
        if self.features is not None:
            return merged(self.features.scores(head_of(model)), self.data.sequences.parts, self.merge)
        return class_scores(model, self.data.sequences, scoring, self.merge)

    def scores(self, model: Pretraining, scoring: Scoring) -> Scores:
        return Scores(
            metric=self.metric,
            values=class_metrics(self.data.labels, self.logits(model, scoring), self.config),
        )

    def calibration(self, model: Pretraining, scoring: Scoring) -> Calibration:
        if self.config.kind == "regression":
            return Calibration()
        kind: Kind = "softmax" if self.config.kind == "multi-class" else "sigmoid"
        return calibration(self.logits(model, scoring), self.data.labels, kind=kind)


@dataclass(frozen=True, eq=False)
class HeldOutTags:
    data: TaggedWords
    config: TaggingConfig
    metric: str
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Pretraining, scoring: Scoring) -> HeldOutTags:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Pretraining, scoring: Scoring) -> Floats:
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Pretraining, scoring: Scoring) -> Scores:
        head = head_of(model)
        assert isinstance(head, Tagging)
        counts = words_read(self.data.sequences)
        found = decode(head, self.logits(model, scoring), counts)
        return Scores(metric=self.metric, values=tag_metrics(self.data.tags, found, counts, self.config))

    def calibration(self, model: Pretraining, scoring: Scoring) -> Calibration:
        """Of the scores of single words; under a CRF, whose scores are not probabilities, none is fitted."""
        known = self.data.tags != IGNORE
        if self.config.crf or not known.any():
            return Calibration()
        return calibration(self.logits(model, scoring)[known], self.data.tags[known], kind="softmax")


def calibration(logits: Floats, labels: npt.NDArray[np.generic], *, kind: Kind) -> Calibration:
    """The temperature that fits all examples, and what it is worth on those it was not fitted on."""
    whole = Calibration(temperature=fit_temperature(logits, labels, kind=kind))
    if len(labels) < 4:
        return whole
    halves = np.arange(len(labels)) % 2 == 0
    cold = np.empty(logits.shape)
    for own in (halves, ~halves):
        cold[own] = logits[own] / fit_temperature(logits[~own], labels[~own], kind=kind)
    chances = softmax if kind == "softmax" else sigmoid
    before, after = (reliability_of(chances(scores), labels, kind=kind).ece for scores in (logits, cold))
    return msgspec.structs.replace(whole, before=before, after=after)


def class_metrics(gold: npt.NDArray[np.generic], scores: Floats, config: ClassificationConfig) -> dict[str, float]:
    """All metrics of a kind of classification, from scores [E, K]."""
    if config.kind == "regression":
        found, wanted = scores[:, 0].astype(np.float64), np.asarray(gold, np.float64)
        error = float(np.sqrt(np.mean((found - wanted) ** 2)))
        return {"spearman": spearman(found, wanted), "pearson": pearson(found, wanted), "rmse": error}
    if config.kind == "multi-label":
        several = multi_label(gold, scores >= 0)
        return {
            "micro-f1": several.micro.f1,
            "macro-f1": several.macro.f1,
            "exact-match": several.exact_match,
            "hamming": several.hamming,
        }
    table = confusion(gold, scores.argmax(-1), classes=len(config.labels))
    counts = f1_by_class(table)
    values = {"accuracy": accuracy_of(table), "macro-f1": average(counts, "macro").f1, "matthews": matthews(table)}
    if len(config.labels) == 2:
        values["f1"] = counts.of(1).f1  # of the second class, as benchmarks of paraphrases count it
    return values


def tag_metrics(gold: Ints, found: Ints, counts_E: Ints, config: TaggingConfig) -> dict[str, float]:
    """Accuracy of words, and of entities where tags spell any."""
    known = gold != IGNORE
    values = {"accuracy": float((gold == found)[known].mean()) if known.any() else float("nan")}
    if config.scheme != "none":
        wanted, given = tags_of(gold, counts_E, config), tags_of(found, counts_E, config)
        score = tag_f1(wanted, given, config.scheme, reading="lenient")
        values |= {
            "entity-f1": score.micro.f1,
            "precision": score.micro.precision,
            "recall": score.micro.recall,
            "macro-f1": score.macro.f1,
            "entity-f1-strict": tag_f1(wanted, given, config.scheme, reading="strict").micro.f1,
        }
    return values


def tags_of(tags_W: Ints, counts_E: Ints, config: TaggingConfig) -> list[list[str]]:
    """The tags of each example by name."""
    names = np.array(config.labels)[tags_W].tolist()
    borders = edges(counts_E).tolist()
    return [names[first:last] for first, last in pairwise(borders)]


def metric_of_texts(config: ClassificationConfig, counts: Sequence[int], asked: str | None = None) -> str:
    """The metric that decides; `counts` are the training examples of each class."""
    known = {
        "multi-class": ["accuracy", "macro-f1", "matthews", *(["f1"] if len(config.labels) == 2 else [])],
        "multi-label": ["micro-f1", "macro-f1", "exact-match"],
        "regression": ["spearman", "pearson"],
    }[config.kind]
    if asked is not None:
        return _known(asked, known)
    if config.kind == "multi-class" and min(counts) < sum(counts) / len(counts) / 2:
        return "macro-f1"
    return known[0]


def metric_of_tags(config: TaggingConfig, asked: str | None = None) -> str:
    entities = ["entity-f1", "accuracy", "macro-f1", "precision", "recall", "entity-f1-strict"]
    known = ["accuracy"] if config.scheme == "none" else entities
    return known[0] if asked is None else _known(asked, known)


def _known(asked: str, known: list[str]) -> str:
    if asked not in known:
        raise UsageError(f"--metric {asked} does not score this task{did_you_mean(asked, known)}")
    return asked


def calibrated(model: Pretraining, temperature: float) -> Head:
    """Have the head divide its scores by the temperature."""
    head = head_of(model)
    head.config = msgspec.structs.replace(head.config, temperature=float(temperature))
    return head
