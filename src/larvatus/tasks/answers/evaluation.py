"""What a model that answers questions is worth: exact match and F1 as the official scripts have them, with intervals.

    found = evaluate_answers(bundle, read_questions("dev-v2.0.json"))
    found.metrics["f1"].value, found.best["f1"].threshold, found.predictions["56be…"]

Where the data or the model know questions without an answer, scores are those of SQuAD 2, questions with and without an
answer are scored apart as well, and `best` says which threshold of no answer would have been best on these questions:
a number to look at, since it was chosen by looking. Questions are drawn by the bootstrap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset, QuestionExample
from larvatus.metrics.squad import BestThreshold, Version, question_scores
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.answers.answer import answerer_of, encode_questions
from larvatus.tasks.answers.validation import QuestionValidation
from larvatus.tasks.evaluation.evaluated import Evaluation, PairedMetrics, plain, plain_metrics, read_statistics
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.evaluation.resampling import ResampledMetric


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerEvaluation(Evaluation):
    """Of questions that are answered."""

    data: Dataset[QuestionExample]
    version: Version
    """Of SQuAD, whose rules score."""
    threshold: float | None
    """The model's own; None of one that always answers."""
    best: dict[str, BestThreshold]
    """The thresholds that would give these questions the best scores, by metric; none where it always answers."""
    exact: Doubles
    """[E] of each question; so is F1."""
    f1: Doubles
    answers: tuple[str, ...]
    """[E] empty for none."""
    null_scores: tuple[float, ...]
    """[E] by how much no answer is ahead of the best span; nothing where the model always answers."""

    @property
    def predictions(self) -> dict[str, str]:
        """Answers by the ids of their questions, as official scorers read them."""
        return {example.id: text for example, text in zip(self.data, self.answers, strict=True)}

    def shown(self) -> Iterator[ReportPart]:
        none = sum(not text for text in self.answers)
        yield f"\nscored by the rules of SQuAD {self.version}; {none:,} of {len(self.data):,} questions not answered"
        if self.threshold is not None:
            best = ", ".join(f"{name} {each.score:.4f} at {each.threshold:.3f}" for name, each in self.best.items())
            yield f"threshold of no answer {self.threshold:.3f}; the best on these questions: {best}"

    def paired(self, other: AnswerEvaluation) -> PairedMetrics:
        return PairedMetrics(*paired_answers(self, other), (self.exact > 0, other.exact > 0))

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "version": self.version,
            "metrics": plain_metrics(self.metrics),
            "threshold": self.threshold,
            "best": {name: plain(dataclasses.asdict(each)) for name, each in self.best.items()},
            "questions": len(self.data),
            "without_answer": sum(example.impossible for example in self.data),
            "not_answered": sum(not text for text in self.answers),
            "read": self.reading.to_dict(),
        }


def evaluate_answers(
    bundle: Bundle, data: Dataset[QuestionExample], options: EvaluationOptions = EvaluationOptions()
) -> AnswerEvaluation:
    """A model that answers questions from passages."""
    config = answerer_of(bundle.network, str(bundle.path)).config
    hidden = next((example for example in data if not example.known), None)
    if hidden is not None:
        raise DataError(f"{hidden.place}: its answer is not given, so it cannot be scored; drop it")
    version: Version = "2.0" if config.null or any(example.impossible for example in data) else "1.1"
    asked = encode_questions(bundle, data.examples, options.windows(bundle))
    bundle.network.to(options.scoring.device)
    held = QuestionValidation(asked, data.examples, config.null, "f1")
    _, decoded = held.found(bundle.network, options.scoring)
    answers = held.texts(decoded, config, None)
    scores = [
        question_scores(example.golds, text, version=version) for example, text in zip(data, answers, strict=True)
    ]
    exact, f1 = np.array(scores, np.float64).T
    rows = resampled_answers(exact, f1, np.array([example.impossible for example in data]), version)
    return AnswerEvaluation(
        model=str(bundle.path),
        data=data,
        version=version,
        metrics={name: metric.interval(samples=options.samples, seed=options.seed) for name, metric in rows.items()},
        threshold=config.threshold if config.null else None,
        best={name: held.best(decoded, config, name) for name in ("f1", "exact-match")} if config.null else {},
        reading=read_statistics(asked.sequences),
        exact=exact,
        f1=f1,
        answers=tuple(answers),
        null_scores=tuple(held.against(decoded, config)) if config.null else (),
    )


def resampled_answers(
    exact_E: Doubles, f1_E: Doubles, impossible_E: npt.NDArray[np.bool_], version: Version
) -> dict[str, ResampledMetric]:
    """Means over all questions and, in version 2, over those with and without an answer."""
    means = {"f1": _mean_of(f1_E), "exact-match": _mean_of(exact_E)}
    if version == "1.1":
        return means
    if not impossible_E.all():
        means["has-answer-f1"] = _mean_of(f1_E, ~impossible_E)
        means["has-answer-exact"] = _mean_of(exact_E, ~impossible_E)
    if impossible_E.any():  # exact match and F1 are the same of these
        means["no-answer"] = _mean_of(exact_E, impossible_E)
    return means


def _mean_of(values_E: Doubles, mask_E: npt.NDArray[np.bool_] | None = None) -> ResampledMetric:
    weights = np.ones_like(values_E) if mask_E is None else mask_E.astype(np.float64)
    return ResampledMetric(np.stack([values_E * weights, weights], axis=1), _mean)


def _mean(sums: Doubles) -> Doubles:
    """Not defined of no questions."""
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])


def paired_answers(
    first: AnswerEvaluation, second: AnswerEvaluation
) -> tuple[dict[str, ResampledMetric], dict[str, ResampledMetric]]:
    """What two models add question by question; under the rules of version 2 where one of them has them."""
    version: Version = "2.0" if "2.0" in (first.version, second.version) else "1.1"
    impossible = np.array([example.impossible for example in first.data])
    rows = []
    for evaluation in (first, second):
        pairs = zip(evaluation.data, evaluation.answers, strict=True)
        exact, f1 = np.array([question_scores(example.golds, text, version=version) for example, text in pairs]).T
        rows.append(resampled_answers(exact, f1, impossible, version))
    return rows[0], rows[1]
