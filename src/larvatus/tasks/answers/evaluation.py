"""Scores of a model that answers questions, during and after training: exact match and F1 as in the official scripts.

    validation = question_validation(bundle, dev, windows, AnswerOptions(), null=True, metric="best-f1")
    validation.scores(model, scoring).values["f1"]
    result = evaluate_answers(bundle, read_questions("dev-v2.0.json"))
    result.metrics["f1"].value, result.best["f1"].threshold, result.predictions["56be…"]

The default metric is F1. With questions that have no answer it is the F1 under the best threshold, since the threshold
is fitted after training. Evaluation then uses the scores of SQuAD 2, also separately for questions with and without an
answer; `best` is the threshold that would have been best on these questions, which is optimistic, since it was chosen
on them. The bootstrap resamples questions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Floats
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.core.targets import AnswerSpans
from larvatus.data.labelled.records import Dataset, QuestionExample
from larvatus.metrics.calibration import COLDEST, HOTTEST
from larvatus.metrics.squad import BestThreshold, Version, best_threshold, question_scores
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.answer import (
    DecodedSpans,
    Decoding,
    answerer_of,
    best_spans,
    chosen_text,
    decode,
    encode_questions,
    null_score,
    passage_scores,
)
from larvatus.tasks.answers.passages import EmptyWindows, EncodedQuestions, answer_tokens, label_questions
from larvatus.tasks.evaluation.evaluation import (
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    plain,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.scoring import ScoringOptions, score_sequences
from larvatus.tasks.validation import Calibration, Scores, accept_or_refuse, check_metric, mean_loss

METRICS = ("f1", "exact-match")
WITH_NULL = ("best-f1", "f1", "exact-match")
CALIBRATED_ON = 1_000
"""Held-out questions that the temperature is fitted on, at most."""


@dataclass(frozen=True, eq=False)
class QuestionValidation:
    """Questions that a model is scored on."""

    asked: EncodedQuestions
    examples: tuple[QuestionExample, ...]
    null: bool
    metric: str
    decoding: Decoding = field(default_factory=Decoding)
    empty: EmptyWindows = field(default_factory=EmptyWindows)
    """How much windows without the answer count in the loss."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> QuestionValidation:
        """Frozen or not, the encoder is run each time: the vectors of all tokens would fill a disk."""
        return self

    def found(self, model: Network, scoring: ScoringOptions) -> tuple[QuestionAnsweringConfig, list[DecodedSpans]]:
        scores = score_sequences(model, self.asked.sequences, scoring)
        return self._decoded(model, scores)

    def _decoded(self, model: Network, scores: Floats) -> tuple[QuestionAnsweringConfig, list[DecodedSpans]]:
        head = answerer_of(model)
        return head.config, list(decode(self.asked, scores, head.config, self.decoding))

    @cached_property
    def targets(self) -> AnswerSpans[Any]:
        """Position of the answer in every window."""
        weighted = msgspec.structs.replace(self.empty, most=None)  # all windows are read, so all are counted
        return label_questions(self.asked, self.examples, weighted).targets(np.arange(len(self.asked.firsts)))

    def predictions(self, model: Network, scoring: ScoringOptions) -> list[str]:
        """The answer to each question, empty for none."""
        config, decoded = self.found(model, scoring)
        return self.texts(decoded, config, self.decoding.threshold)

    def texts(self, decoded: list[DecodedSpans], config: QuestionAnsweringConfig, threshold: float | None) -> list[str]:
        both = zip(self.asked.passages, decoded, strict=True)
        return [chosen_text(passage, answer, config, threshold) for passage, answer in both]

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        scores = score_sequences(model, self.asked.sequences, scoring)
        config, decoded = self._decoded(model, scores)
        values = self._values(self.texts(decoded, config, self.decoding.threshold))
        if config.null:
            best = self.best(decoded, config)
            values |= {"best-f1": best.score, "best-threshold": best.threshold}
        head = answerer_of(model)
        return Scores(metric=self.metric, values=values, validation_loss=mean_loss(head, scores, self.targets))

    def _values(self, texts: list[str]) -> dict[str, float]:
        version = "2.0" if self.null else "1.1"
        scored = [
            question_scores(example.golds, text, version=version)  # type: ignore[arg-type]
            for example, text in zip(self.examples, texts, strict=True)
        ]
        exact, f1 = np.mean(scored, axis=0).tolist()
        return {"f1": f1, "exact-match": exact}

    def against(self, decoded: list[DecodedSpans], config: QuestionAnsweringConfig) -> list[float]:
        """Score of no answer minus that of the best span, for each question."""
        return [float(null_score(answer, config) or 0.0) for answer in decoded]

    def best(self, decoded: list[DecodedSpans], config: QuestionAnsweringConfig, metric: str = "f1") -> BestThreshold:
        """The threshold of no answer that gives these questions the highest F1, or exact match."""
        texts = self.texts(decoded, config, float("inf"))
        against = {str(n): value for n, value in enumerate(self.against(decoded, config))}
        golds = {str(n): example.golds for n, example in enumerate(self.examples)}
        which = 0 if metric == "exact-match" else 1
        scored = {id: question_scores(golds[id], texts[int(id)], version="2.0")[which] for id in golds}
        predictions = {str(n): text for n, text in enumerate(texts)}
        finite = [margin for margin in against.values() if np.isfinite(margin)]
        lowest = min(finite, default=0.0) - 1.0
        return best_threshold(scored, against, golds=golds, predictions=predictions, lowest=lowest)

    def threshold(self, model: Network, scoring: ScoringOptions) -> float:
        """The threshold of no answer that gives these questions the highest F1."""
        config, decoded = self.found(model, scoring)
        best = self.best(decoded, config).threshold
        return best if np.isfinite(best) else 0.0

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """A temperature that gives the right spans of these questions the highest likelihood among all legal ones."""
        head = answerer_of(model)
        config = head.config
        scores = score_sequences(model, self.asked.sequences, scoring)
        cases: list[tuple[Any, float, float]] = []  # scores of a passage, of the right span, of no answer
        for example, passage, (pieces, null) in zip(
            self.examples, self.asked.passages, passage_scores(self.asked, scores), strict=True
        ):
            tokens, both_T2 = answer_tokens(passage, example), pieces[0][1]
            if example.impossible:
                right = null
            elif 0 < len(tokens) <= config.longest and tokens.stop <= len(both_T2):
                right = float(both_T2[tokens.start, 0] + both_T2[tokens.stop - 1, 1])
            else:
                continue
            if np.isfinite(right):
                cases.append((both_T2, right, null))
        cases = cases[:: max(1, -(-len(cases) // CALIBRATED_ON))]
        return _fitted(cases, config)


def _fitted(cases: Sequence[tuple[Any, float, float]], config: QuestionAnsweringConfig) -> Calibration:
    """From the scores of passages, of the right span of each and of no answer."""
    if not cases:
        return Calibration()

    def losses(some: Sequence[tuple[Any, float, float]], heat: float) -> list[float]:
        values = []
        for both_T2, right, null in some:
            total = best_spans(both_T2[:, 0], both_T2[:, 1], longest=config.longest, top=1, temperature=heat)[1]
            total = float(np.logaddexp(total, null / heat)) if config.null else total
            values.append(total - right / heat)
        return values

    def likeliest(some: Sequence[tuple[Any, float, float]]) -> float:
        low, high = np.log(COLDEST), np.log(HOTTEST)
        lowest = _lowest(lambda heat: float(np.mean(losses(some, float(np.exp(heat))))), low, high)
        ends = (abs(lowest - low) < 0.01, abs(lowest - high) < 0.01)  # closer the search does not come
        return COLDEST if ends[0] else HOTTEST if ends[1] else float(np.exp(lowest))

    fitted, halves = likeliest(cases), (cases[::2], cases[1::2])
    if len(halves[1]) < 2:
        return accept_or_refuse(Calibration(fitted=fitted))
    warm = [loss for half, other in (halves, halves[::-1]) for loss in losses(half, likeliest(other))]
    return accept_or_refuse(
        Calibration(fitted=fitted, loss_before=float(np.mean(losses(cases, 1.0))), loss_after=float(np.mean(warm)))
    )


def _lowest(function: Callable[[float], float], low: float, high: float, *, close: float = 0.01) -> float:
    """The minimum of a function with one valley, by golden section (Kiefer 1953)."""
    share = (5**0.5 - 1) / 2
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > close:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = function(right)
    return (low + high) / 2


def answer_metric(config: QuestionAnsweringConfig, asked: str | None = None) -> str:
    known = WITH_NULL if config.null else METRICS
    return check_metric(asked, known)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerEvaluation(Evaluation):
    """Evaluation of a model that answers questions."""

    data: Dataset[QuestionExample]
    version: Version
    """Version of SQuAD whose rules score."""
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

    def details(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "metrics": plain_metrics(self.metrics),
            "threshold": self.threshold,
            "best": {name: plain(dataclasses.asdict(each)) for name, each in self.best.items()},
            "questions": len(self.data),
            "without_answer": sum(example.impossible for example in self.data),
            "not_answered": sum(not text for text in self.answers),
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
        metrics=options.intervals(rows),
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
    """Metrics of two models, question by question; by the rules of version 2 if either needs them."""
    version: Version = "2.0" if "2.0" in (first.version, second.version) else "1.1"
    impossible = np.array([example.impossible for example in first.data])
    rows = []
    for evaluation in (first, second):
        pairs = zip(evaluation.data, evaluation.answers, strict=True)
        exact, f1 = np.array([question_scores(example.golds, text, version=version) for example, text in pairs]).T
        rows.append(resampled_answers(exact, f1, impossible, version))
    return rows[0], rows[1]
