"""Scores of a multiple-choice model, during and after training: accuracy, by number of endings, calibration.

evaluation = evaluate_choices(bundle, read_choices("test.jsonl"))
evaluation.metrics["accuracy"].value, evaluation.by_endings[4].accuracy
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats, Ints
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.calibration import brier, negative_log_likelihood, reliability_of_probabilities, softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import Network
from larvatus.tasks.choose.encode import EncodedChoices, chooser_of, encode_choices, ending_scores, scores_by_example
from larvatus.tasks.choose.reader import ChoiceExample
from larvatus.tasks.evaluation.evaluation import (
    CalibrationReport,
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    ReadStatistics,
    plain_metrics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_words
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores, fit_calibration, mean_loss

METRICS = ("accuracy",)


@dataclass(frozen=True, eq=False)
class ChoiceValidation(EncodedValidation):
    data: EncodedChoices
    metric: str = "accuracy"

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self.row_scores(model, scoring)
        right = scores_by_example(windows, self.data).argmax(-1) == self.data.labels
        return Scores(
            metric=self.metric,
            values={"accuracy": float(right.mean())},
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        known = self.data.labels != IGNORE
        logits = scores_by_example(self.row_scores(model, scoring), self.data)
        return fit_calibration(logits[known], self.data.labels[known], kind="softmax")


@dataclass(frozen=True)
class EndingCountScore:
    """Accuracy on the examples with a given number of endings."""

    examples: int
    accuracy: float
    chance: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceEvaluation(Evaluation):
    """Evaluation of a model that chooses endings."""

    data: Dataset[ChoiceExample]
    by_endings: dict[int, EndingCountScore]
    """Scores by number of endings."""
    calibration: CalibrationReport
    gold: Ints
    """[E] the right endings; so are the `answers`."""
    answers: Ints
    probabilities: Floats
    """[E, most endings] calibrated; 0 of endings that an example does not have."""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.gold == self.answers)

    def details(self) -> dict[str, Any]:
        return {
            "metrics": plain_metrics(self.metrics),
            "by_endings": [{"endings": size, **dataclasses.asdict(row)} for size, row in self.by_endings.items()],
            "calibration": self.calibration.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        yield Table(
            ("endings", "examples", "accuracy", "chance"),
            tuple(
                (str(size), f"{row.examples:,}", f"{row.accuracy:.4f}", f"{row.chance:.4f}")
                for size, row in self.by_endings.items()
            ),
            blank_before=True,
        )
        yield from self.calibration.shown()

    def paired(self, other: ChoiceEvaluation) -> PairedMetrics:
        return PairedMetrics(_resampled(self.right), _resampled(other.right), (self.right, other.right))


def evaluate_choices(
    bundle: Bundle, data: Dataset[ChoiceExample], options: EvaluationOptions = EvaluationOptions()
) -> ChoiceEvaluation:
    """A model that chooses endings."""
    temperature = chooser_of(bundle.network, str(bundle.path)).config.temperature
    encoded = encode_choices(bundle, data.examples, options.windows(bundle))
    bundle.network.to(options.scoring.device)
    logits = ending_scores(bundle.network, encoded, options.scoring, options.merge)
    answers, probabilities = logits.argmax(-1), softmax(logits / temperature)
    right = answers == encoded.labels
    return ChoiceEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(_resampled(right)),
        by_endings={
            int(size): EndingCountScore(
                int((of := encoded.endings == size).sum()), float(right[of].mean()), 1 / int(size)
            )
            for size in np.unique(encoded.endings)
        },
        calibration=CalibrationReport(
            temperature=temperature,
            nll=negative_log_likelihood(logits / temperature, encoded.labels),
            brier=brier(probabilities, encoded.labels),
            reliability=reliability_of_probabilities(probabilities, encoded.labels, kind="softmax"),
        ),
        reading=_reading(encoded),
        gold=encoded.labels,
        answers=answers,
        probabilities=probabilities.astype(np.float32),
    )


def _resampled(right: npt.NDArray[np.bool_]) -> dict[str, ResampledMetric]:
    return resampled_words(right, np.ones(len(right)))


def _reading(data: EncodedChoices) -> ReadStatistics:
    coverage = data.coverage
    return ReadStatistics(
        examples=len(data),
        long=sum(
            example.windows > endings or example.read < example.tokens
            for example, endings in zip(coverage, data.endings.tolist(), strict=True)
        ),
        windows=sum(example.windows for example in coverage),
        tokens=sum(example.tokens for example in coverage),
        read=sum(example.read for example in coverage),
    )
