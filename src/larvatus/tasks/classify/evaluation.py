"""Evaluation of a classifier on labelled texts: metrics with intervals, classes, confusions, calibration.

    found = evaluate_texts(bundle, read_texts("test.tsv"))
    found.metrics["accuracy"].value, found.metrics["accuracy"].low, found.by_class["yes"].f1

Labels that the model does not know count as wrong (`tasks/arguments.py`). Calibration is measured on the
probabilities that `predict` gives (scores divided by the model's temperature), over the texts whose label it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import UsageError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.metrics.calibration import brier, negative_log_likelihood, reliability_of_probabilities
from larvatus.metrics.classification import F1, ClassCounts, confusion, f1_by_class, multi_label
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Classification, ClassificationConfig
from larvatus.models.heads.classification import Kind
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.classify.classify import (
    LabelledTexts,
    class_scores,
    classifier_of,
    labelled_texts,
    probabilities,
)
from larvatus.tasks.evaluation.evaluation import (
    CalibrationReport,
    EvaluationOptions,
    LabelEvaluation,
    PairedMetrics,
    class_rows,
    most_confused,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import resampled_classes
from larvatus.tasks.evaluation.tables import class_table, confusion_table


@dataclass(frozen=True, kw_only=True, eq=False)
class TextEvaluation(LabelEvaluation):
    """Evaluation of a model that classifies texts."""

    data: Dataset[TextExample]
    kind: Kind
    by_class: dict[str, F1]
    """Scores of each class; empty for a regression."""
    gold: npt.NDArray[np.generic]
    """[E] classes or numbers, [E, K] truths; so are the answers `found`."""
    found: npt.NDArray[np.generic]
    probabilities: Floats
    """[E, K] calibrated; of a regression the number."""

    def details(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "metrics": plain_metrics(self.metrics),
            "classes": class_rows(self.by_class),
            **self.label_dict(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        if self.by_class:
            yield from class_table("class", self.by_class)
        if self.confusion is not None:
            yield from confusion_table(self.confusion, self.labels, most_confused(self.confusion, self.labels))
        yield from self.calibration_and_notes()

    def paired(self, other: TextEvaluation) -> PairedMetrics:
        return _paired_texts(self, other)


def evaluate_texts(
    bundle: Bundle, data: Dataset[TextExample], options: EvaluationOptions = EvaluationOptions()
) -> TextEvaluation:
    """A model that classifies texts or pairs, or gives them a number."""
    config = classifier_of(bundle.network, str(bundle.path)).config
    encoded = labelled_texts(bundle, data.examples, config, options.windows(bundle))
    encoded.unknown.check(strict=options.strict)
    bundle.network.to(options.scoring.device)
    scores = class_scores(bundle.network, encoded.sequences, options.scoring, options.merge)
    return evaluate_scores(bundle, data, encoded, scores, options)


def evaluate_scores(
    bundle: Bundle, data: Dataset[TextExample], encoded: LabelledTexts, scores: Floats, options: EvaluationOptions
) -> TextEvaluation:
    """Evaluate scores [E, K] of the model's labels."""
    head = classifier_of(bundle.network, str(bundle.path))
    config, unknown = head.config, encoded.unknown
    names = (*config.labels, *unknown.names)
    gold, answers = unknown.added_to(encoded.labels, known=len(config.labels)), answers_of(scores, config)
    if answers.ndim == 2:
        answers = np.pad(answers, ((0, 0), (0, len(unknown.names))))
    rows = resampled_classes(gold, answers, kind=config.kind, classes=len(names), binary=len(config.labels) == 2)
    counts, table = _counts(gold, answers, config, len(names))
    known = encoded.labels != IGNORE if config.kind == "multi-class" else np.ones(len(gold), np.bool_)
    return TextEvaluation(
        model=str(bundle.path),
        data=data,
        kind=config.kind,
        labels=names,
        unknown=unknown.names,
        notes=tuple(line for line in [unknown.note("texts", "labelled with classes")] if line),
        metrics=options.intervals(rows),
        by_class={label: counts.of(number) for number, label in enumerate(names)} if counts else {},
        confusion=table,
        calibration=_calibration_of_texts(head, encoded.labels[known], scores[known]),
        reading=read_statistics(encoded.sequences),
        gold=gold,
        found=answers,
        probabilities=probabilities(head, scores),
    )


def answers_of(scores_EK: Floats, config: ClassificationConfig) -> npt.NDArray[np.generic]:
    """Classes [E], truths [E, K] or numbers [E], as `predict` gives them."""
    if config.kind == "regression":
        return scores_EK[:, 0]
    return np.asarray(scores_EK.argmax(-1) if config.kind == "multi-class" else scores_EK >= 0)


def _counts(
    gold: npt.NDArray[np.generic], answers: npt.NDArray[np.generic], config: ClassificationConfig, class_table: int
) -> tuple[ClassCounts | None, Ints | None]:
    if config.kind == "regression":
        return None, None
    if config.kind == "multi-label":
        return multi_label(gold, answers).counts, None
    table = confusion(gold, answers, classes=class_table)
    return f1_by_class(table), table


def _calibration_of_texts(
    head: Classification, gold: npt.NDArray[np.generic], scores_EK: Floats
) -> CalibrationReport | None:
    config = head.config
    if config.kind == "regression" or not len(gold):
        return None
    kind: Literal["softmax", "sigmoid"] = "softmax" if config.kind == "multi-class" else "sigmoid"
    p_EK = probabilities(head, scores_EK)
    return CalibrationReport(
        temperature=config.temperature,
        nll=negative_log_likelihood(scores_EK / config.temperature, gold, kind=kind),
        brier=brier(p_EK, gold, kind=kind),
        reliability=reliability_of_probabilities(p_EK, gold, kind=kind),
    )


def right_answers(evaluation: TextEvaluation) -> npt.NDArray[np.bool_]:
    """[E] whether each text has its class, or all its labels."""
    same = np.asarray(evaluation.gold == evaluation.found)
    return same if same.ndim == 1 else np.asarray(same.all(1))


def _paired_texts(first: TextEvaluation, second: TextEvaluation) -> PairedMetrics:
    if first.kind != second.kind:
        raise UsageError(
            f"{first.model} is a model of {first.kind}, {second.model} of {second.kind}; compare two of the same kind"
        )
    if first.kind == "multi-label" and set(first.labels) != set(second.labels):
        raise UsageError(f"{first.model} and {second.model} have different labels; compare models of the same")
    names = tuple(dict.fromkeys((*first.labels, *second.labels)))
    place = np.array([names.index(label) for label in second.labels])
    answers: npt.NDArray[np.generic] = second.found
    if first.kind == "multi-class":
        answers = place[np.asarray(second.found, np.int64)]
    elif first.kind == "multi-label":
        answers = second.found[:, np.argsort(place)]
    known = [set(evaluation.labels) - set(evaluation.unknown) for evaluation in (first, second)]
    binary = len(known[0]) == 2 and known[0] == known[1]
    return PairedMetrics(
        resampled_classes(first.gold, first.found, kind=first.kind, classes=len(names), binary=binary),
        resampled_classes(first.gold, answers, kind=first.kind, classes=len(names), binary=binary),
        None if first.kind == "regression" else (right_answers(first), right_answers(second)),
    )
