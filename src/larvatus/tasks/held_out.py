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
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from larvatus.arrays import Floats, Ints
from larvatus.batch import edges
from larvatus.errors import UsageError, did_you_mean
from larvatus.heads import ClassificationConfig, Tagging, TaggingConfig
from larvatus.heads.head import Head
from larvatus.metrics.calibration import (
    Kind,
    at_bound,
    fit_temperature,
    negative_log_likelihood,
    reliability_of,
    sigmoid,
    softmax,
)
from larvatus.metrics.classification import accuracy_of, average, confusion, f1_by_class, matthews, multi_label
from larvatus.metrics.correlation import pearson, spearman
from larvatus.metrics.entities import tag_f1
from larvatus.network import Network
from larvatus.nn.buckets import IGNORE
from larvatus.targets import WordTags
from larvatus.tasks.classify.classify import LabelledTexts, Merge, merged
from larvatus.tasks.fit.choosing import Scores
from larvatus.tasks.fit.features import Features
from larvatus.tasks.scoring import Scoring, head_of, score_sequences
from larvatus.tasks.tag.tag import TaggedWords, decode, words_read


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The temperature that is used, and what was fitted; errors and losses are NaN where they were not measured.

    With a temperature they are measured on each half of the examples with one fitted on the other half. One that makes
    the likelihood or the calibration error worse there is not used, nor one at a bound; `refused` then says why.
    """

    temperature: float = 1.0
    """By which scores are divided."""
    fitted: float = math.nan
    """The likeliest, used or not."""
    before: float = math.nan
    """Expected calibration error without a temperature."""
    after: float = math.nan
    """With one."""
    loss_before: float = math.nan
    """Negative log-likelihood without a temperature."""
    loss_after: float = math.nan
    refused: str = ""
    """Why the fitted temperature is not used; empty where it is, or where there was nothing to fit."""

    @property
    def line(self) -> str:
        """For people: what was fitted, what it is worth, and whether it is used; empty where nothing was fitted."""
        if math.isnan(self.fitted):
            return ""
        figures = f"held-out loss {self.loss_before:.4f}, {self.loss_after:.4f} with it"
        if not math.isnan(self.before):
            figures = f"calibration error {self.before:.4f}, {self.after:.4f} with it; {figures}"
        if math.isnan(self.loss_before):
            figures = "not measured"
        if self.refused:
            return f"probabilities have no temperature: {self.refused} ({self.fitted:.3g} fitted; {figures})"
        return f"probabilities have a temperature of {self.temperature:.3f} ({figures})"


class HeldOut(Protocol):
    """Examples that a model is scored on."""

    @property
    def metric(self) -> str:
        """The one that decides."""

    def scores(self, model: Network, scoring: Scoring) -> Scores: ...

    def calibration(self, model: Network, scoring: Scoring) -> Calibration:
        """By what scores must be divided so that probabilities are right on average."""

    def read_once(self, model: Network, scoring: Scoring) -> HeldOut:
        """The same, for models with this encoder, which is then not run again."""


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    data: LabelledTexts
    config: ClassificationConfig
    metric: str
    merge: Merge = "mean"
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: Scoring) -> HeldOutTexts:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Network, scoring: Scoring) -> Floats:
        return merged(self._windows(model, scoring), self.data.sequences.parts, self.merge)

    def _windows(self, model: Network, scoring: Scoring) -> Floats:
        """Scores of each window: [S, K]."""
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: Scoring) -> Scores:
        windows = self._windows(model, scoring)
        return Scores(
            metric=self.metric,
            values=class_metrics(
                self.data.unknown.added_to(self.data.labels, known=len(self.config.labels)),
                merged(windows, self.data.sequences.parts, self.merge),
                self.config,
            ),
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: Scoring) -> Calibration:
        if self.config.kind == "regression":
            return Calibration()
        if self.config.kind == "multi-label":
            return calibration(self.logits(model, scoring), self.data.labels, kind="sigmoid")
        known = self.data.labels != IGNORE
        return calibration(self.logits(model, scoring)[known], self.data.labels[known], kind="softmax")


@dataclass(frozen=True, eq=False)
class HeldOutTags:
    data: TaggedWords
    config: TaggingConfig
    metric: str
    features: Features | None = None
    """Of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: Scoring) -> HeldOutTags:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Network, scoring: Scoring) -> Floats:
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: Scoring) -> Scores:
        head = head_of(model)
        assert isinstance(head, Tagging)
        counts, unknown = words_read(self.data.sequences), self.data.unknown
        scores = self.logits(model, scoring)
        gold = np.asarray(unknown.added_to(self.data.tags, known=len(self.config.labels)), np.int64)
        values = tag_metrics(gold, decode(head, scores, counts), counts, self.config, more=unknown.names)
        targets = WordTags(tags=self.data.tags, counts=counts)
        return Scores(metric=self.metric, values=values, validation_loss=mean_loss(head, scores, targets))

    def calibration(self, model: Network, scoring: Scoring) -> Calibration:
        """Of the scores of single words; under a CRF, whose scores are not probabilities, none is fitted."""
        known = self.data.tags != IGNORE
        if self.config.crf or not known.any():
            return Calibration()
        return calibration(self.logits(model, scoring)[known], self.data.tags[known], kind="softmax")


@torch.inference_mode()
def mean_loss(head: Head, scores: Floats, targets: Any) -> float:
    """The loss of all examples from their scores, as the head counts it in training; NaN where nothing is labelled.

    Of a tagger it is that of words, each by the scores that decide it, even where the subwords of a word learn.
    """
    if isinstance(head, Tagging) and head.crf is not None:  # a chain of tags with gaps has no likelihood
        scores, targets = _without_gaps(scores, targets)
    loss = head.score_loss(torch.from_numpy(scores).double(), targets.map(torch.as_tensor))
    return float(loss.total / loss.count) if float(loss.count) else math.nan


def _without_gaps(scores: Floats, targets: WordTags[Ints]) -> tuple[Floats, WordTags[Ints]]:
    """Scores and tags of the texts all of whose words have a known tag."""
    texts = np.repeat(np.arange(len(targets.counts)), targets.counts)
    whole = np.ones(len(targets.counts), np.bool_)
    whole[texts[targets.tags == IGNORE]] = False
    kept = whole[texts]
    counts = targets.counts[whole]
    return scores[kept], dataclasses.replace(targets, tags=targets.tags[kept], counts=counts)


def calibration(
    logits: Floats, labels: npt.NDArray[np.generic], *, kind: Kind, groups: Ints | None = None
) -> Calibration:
    """The temperature that fits all examples, and what it is worth on those it was not fitted on.

    Examples of a group [n] (the spans of one text) are never on both sides.
    """
    fitted = fit_temperature(logits, labels, kind=kind)
    halves = (np.arange(len(labels)) if groups is None else groups) % 2 == 0
    if min(halves.sum(), (~halves).sum()) < 2:
        return judged(Calibration(fitted=fitted))
    cold = np.empty(logits.shape)
    for own in (halves, ~halves):
        cold[own] = logits[own] / fit_temperature(logits[~own], labels[~own], kind=kind)
    chances = softmax if kind == "softmax" else sigmoid
    before, after = (reliability_of(chances(scores), labels, kind=kind).ece for scores in (logits, cold))
    loss_before, loss_after = (negative_log_likelihood(scores, labels, kind=kind) for scores in (logits, cold))
    return judged(
        Calibration(fitted=fitted, before=before, after=after, loss_before=loss_before, loss_after=loss_after)
    )


def judged(fit: Calibration) -> Calibration:
    """Use the fitted temperature, or say why not."""
    why = ""
    if at_bound(fit.fitted):
        cold = fit.fitted < 1
        why = "all held-out examples are right" if cold else "held-out answers are no better than chance"
    elif math.isnan(fit.loss_before):
        why = "too few held-out examples to check one"
    elif fit.loss_after > fit.loss_before:
        why = "it makes the held-out loss worse"
    elif fit.after > fit.before:
        why = "it makes the calibration error worse"
    return msgspec.structs.replace(fit, temperature=1.0 if why else fit.fitted, refused=why)


def class_metrics(gold: npt.NDArray[np.generic], scores: Floats, config: ClassificationConfig) -> dict[str, float]:
    """All metrics of a kind of classification, from scores [E, K]; gold classes from K on are wrong in any case."""
    if config.kind == "regression":
        found, wanted = scores[:, 0].astype(np.float64), np.asarray(gold, np.float64)
        error = float(np.sqrt(np.mean((found - wanted) ** 2)))
        return {"spearman": spearman(found, wanted), "pearson": pearson(found, wanted), "rmse": error}
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


def tag_metrics(
    gold: Ints, found: Ints, counts_E: Ints, config: TaggingConfig, *, more: tuple[str, ...] = ()
) -> dict[str, float]:
    """Accuracy of words, and of entities where tags spell any; `more` are gold tags that the model does not know."""
    known = gold != IGNORE
    values = {"accuracy": float((gold == found)[known].mean()) if known.any() else float("nan")}
    if config.scheme != "none":
        wanted, given = (tags_of(tags, counts_E, config, more=more) for tags in (gold, found))
        score = tag_f1(wanted, given, config.scheme, reading="lenient")
        values |= {
            "entity-f1": score.micro.f1,
            "precision": score.micro.precision,
            "recall": score.micro.recall,
            "macro-f1": score.macro.f1,
            "entity-f1-strict": tag_f1(wanted, given, config.scheme, reading="strict").micro.f1,
        }
    return values


def tags_of(tags_W: Ints, counts_E: Ints, config: TaggingConfig, *, more: tuple[str, ...] = ()) -> list[list[str]]:
    """The tags of each example by name; `more` are those that are numbered after the model's own."""
    names = np.array((*config.labels, *more))[tags_W].tolist()
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


def calibrated(model: Network, temperature: float) -> Head:
    """Have the head divide its scores by the temperature."""
    head = head_of(model)
    head.config = msgspec.structs.replace(head.config, temperature=float(temperature))
    return head
