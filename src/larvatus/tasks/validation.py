"""Validation of a model, during and after training: scores, loss, temperature.

    held.scores(model, scoring).main
    held.calibration(model, scoring).temperature

Each task has examples of its own to be scored on (such as `tasks/choose/encode.py`), and metrics of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.metrics.calibration import (
    Kind,
    at_bound,
    fit_temperature,
    negative_log_likelihood,
    reliability_of_probabilities,
    sigmoid,
    softmax,
)
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.tasks.features import EncodedExamples, Features
from larvatus.tasks.scoring import ScoringOptions, head_of, score_sequences


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of a model on validation examples."""

    metric: str
    """Metric that selects the best checkpoint."""
    values: dict[str, float]
    validation_loss: float = math.nan
    """Mean loss on the held-out examples, as training counts it; NaN where it is not known."""

    @property
    def main(self) -> float:
        return self.values[self.metric]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The temperature that is used, and what was fitted; errors and losses are NaN where they were not measured.

    With a temperature they are measured on each half of the examples with one fitted on the other half. One that makes
    the likelihood or the calibration error worse there is not used, nor one at a bound; `refused` then has the reason.
    """

    temperature: float = 1.0
    """Divisor of the scores."""
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
        """For people: the fitted temperature, its effect, and whether it is used; empty if nothing was fitted."""
        if math.isnan(self.fitted):
            return ""
        figures = f"validation loss {self.loss_before:.4f} → {self.loss_after:.4f}"
        if not math.isnan(self.before):
            figures = f"expected calibration error {self.before:.4f} → {self.after:.4f}, {figures}"
        if math.isnan(self.loss_before):
            figures = "not measured"
        if self.refused:
            return f"not calibrated: {self.refused} (fitted temperature {self.fitted:.3g}, {figures})"
        return f"calibrated: temperature {self.temperature:.3f}, {figures}"


class ValidationSet(Protocol):
    """Examples that a model is scored on during training."""

    @property
    def metric(self) -> str:
        """Metric that selects the best checkpoint."""

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores: ...

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """The temperature that makes probabilities right on average."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> ValidationSet:
        """The same, for models with this encoder, which is then not run again."""


@dataclass(frozen=True, eq=False)
class EncodedValidation:
    """Encoded validation examples, with their features where the encoder is frozen; base of validation sets."""

    data: EncodedExamples
    features: Features | None = field(default=None, kw_only=True)
    """Outputs of the frozen encoder; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> Self:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def row_scores(self, model: Network, scoring: ScoringOptions) -> Floats:
        """Scores [S, K] of each window, or [W, K] of each word."""
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)


@torch.inference_mode()
def mean_loss(head: Head, scores: Floats, targets: Any) -> float:
    """The loss of all examples from their scores, as the head counts it in training; NaN where nothing is labelled.

    Of a tagger it is that of words, each by the scores that decide it, even where the subwords of a word learn.
    """
    loss = head.score_loss(torch.from_numpy(scores).double(), targets.map(torch.as_tensor))
    return float(loss.total / loss.count) if float(loss.count) else math.nan


def fit_calibration(
    logits: Floats, labels: npt.NDArray[np.generic], *, kind: Kind, groups: Ints | None = None
) -> Calibration:
    """The temperature that fits all examples, and its effect on examples it was not fitted on.

    Examples of a group [n] (the spans of one text) are never on both sides.
    """
    fitted = fit_temperature(logits, labels, kind=kind)
    halves = (np.arange(len(labels)) if groups is None else groups) % 2 == 0
    if min(halves.sum(), (~halves).sum()) < 2:
        return accept_or_refuse(Calibration(fitted=fitted))
    cold = np.empty(logits.shape)
    for half in (halves, ~halves):
        cold[half] = logits[half] / fit_temperature(logits[~half], labels[~half], kind=kind)
    chances = softmax if kind == "softmax" else sigmoid
    before, after = (reliability_of_probabilities(chances(scores), labels, kind=kind).ece for scores in (logits, cold))
    loss_before, loss_after = (negative_log_likelihood(scores, labels, kind=kind) for scores in (logits, cold))
    return accept_or_refuse(
        Calibration(fitted=fitted, before=before, after=after, loss_before=loss_before, loss_after=loss_after)
    )


def accept_or_refuse(fit: Calibration) -> Calibration:
    """Use the fitted temperature, or give the reason not to."""
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


def check_metric(asked: str | None, known: Sequence[str]) -> str:
    """The requested metric, if it scores the task; for None the first."""
    if asked is None:
        return known[0]
    if asked not in known:
        raise UsageError(f"--metric {asked} does not score this task{did_you_mean(asked, known)}")
    return asked


def set_temperature(model: Network, temperature: float) -> Head:
    """Set the temperature that the head divides its scores by."""
    head = head_of(model)
    head.config = msgspec.structs.replace(head.config, temperature=float(temperature))
    return head
