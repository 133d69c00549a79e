"""Fine-tuning a model that answers questions: from SQuAD-shaped examples to a calibrated model.

    tuned = finetune_answers(bundle, train, dev, Job(), AnswerOptions())
    tuned.scores.values["f1"], tuned.scores.values["exact-match"]

Where training questions without an answer are seen (SQuAD 2), the model learns to say so, and how sure it must be is
fitted on the held-out questions: the threshold that gives them the highest F1. The metric that decides is F1; with such
questions it is the F1 under the best threshold, since any threshold can be had afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.arrays import Floats
from larvatus.bundle.directory import Bundle
from larvatus.bundle.heads import natural_head
from larvatus.errors import DataError, UsageError, did_you_mean
from larvatus.heads import Answering, AnsweringConfig
from larvatus.labelled.records import Dataset, QuestionExample
from larvatus.metrics.calibration import COLDEST, HOTTEST
from larvatus.metrics.squad import BestThreshold, best_threshold, question_scores
from larvatus.network import Network
from larvatus.ranges import Size, SizeOrNone, check_ranges
from larvatus.targets import AnswerSpans
from larvatus.tasks.answers.answer import (
    Decoding,
    Found,
    best_spans,
    chosen_text,
    decode,
    null_score,
    passage_scores,
    words_at,
)
from larvatus.tasks.answers.passages import Asked, AskedAndAnswered, EmptyWindows, answer_tokens, ask, with_answers
from larvatus.tasks.fit.choosing import Scores
from larvatus.tasks.fit.finetune import Job, Tuned, parted, tuned_with_head, window_of
from larvatus.tasks.fit.head_options import HeadOptions
from larvatus.tasks.fit.loop import scoring_of
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.tasks.held_out import Calibration, judged, mean_loss
from larvatus.tasks.scoring import Scoring, head_of, score_sequences

METRICS = ("f1", "exact-match")
WITH_NULL = ("best-f1", "f1", "exact-match")
CALIBRATED_ON = 1_000
"""Held-out questions that the temperature is fitted on, at most."""
WHOLE = 0.95
"""Share of training answers of whole words from which on answers are widened to words: of TyDiQA, English has 0.99,
Swahili 0.94, Korean 0.42; XQuAD in English has 1.00."""


class AnswerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be chosen of a model that answers questions."""

    null: bool | None = None
    """Whether a passage may not answer; None: as the training questions say."""
    longest: Size = 30
    """Tokens of the longest answer."""
    overlap: SizeOrNone | None = None
    """Tokens that windows of a long passage share; None: a quarter of a window."""
    empty: EmptyWindows = EmptyWindows()
    """What is learnt from windows without the answer."""
    whole_words: bool | None = None
    """Whether answers are widened to whole words; None: where nearly all training answers are of whole words."""
    decoding: Decoding = Decoding()
    """How held-out questions are answered."""

    def __post_init__(self) -> None:
        check_ranges(self, "")


def answering_head(
    train: Dataset[QuestionExample], options: AnswerOptions, *, head: HeadOptions, natural: dict[str, Any]
) -> AnsweringConfig:
    """The head that the questions ask for."""
    plain = msgspec.structs.replace(HeadOptions(), dropout=head.dropout, mix=head.mix)
    if head != plain:
        raise UsageError("pooling, classes, tags, CRF and LSTM belong to finetune classify and tag, not answer")
    impossible = sum(one.impossible for one in train)
    if len(train) == impossible:
        raise DataError(f"{train.source}: not one question has an answer, so there is nothing to learn")
    null = options.null if options.null is not None else impossible > 0
    if impossible and not null:
        raise DataError(
            f"{train.source}: {impossible:,} questions have no answer, which a model that always answers cannot learn; "
            "leave null to the data, or drop them"
        )
    settings = natural if head.dropout is None else {**natural, "dropout": head.dropout}
    whole = marks_whole_words(train) if options.whole_words is None else options.whole_words
    return AnsweringConfig(null=null, longest=options.longest, whole_words=whole, mix=head.mix, **settings)


def marks_whole_words(train: Dataset[QuestionExample]) -> bool:
    """Whether nearly all answers begin and end where words do."""
    cut = total = 0
    for one in train:
        for text, start in one.answers[:1]:
            total += 1
            cut += words_at(one.passage, start, start + len(text)) != (None, None)
    return cut <= (1 - WHOLE) * total


def encode_questions(
    bundle: Bundle, examples: Sequence[QuestionExample], settings: FineTuneConfig, options: AnswerOptions
) -> Asked:
    """Questions in the windows that the settings ask for."""
    return ask(
        bundle.tokenizer,
        [(one.question, one.passage) for one in examples],
        limit=window_of(bundle, settings),
        truncate=settings.truncate,
        overlap=options.overlap,
        places=[one.place for one in examples],
    )


@dataclass(frozen=True, eq=False)
class HeldOutQuestions:
    """Questions that a model is scored on."""

    asked: Asked
    examples: tuple[QuestionExample, ...]
    null: bool
    metric: str
    decoding: Decoding = field(default_factory=Decoding)
    empty: EmptyWindows = field(default_factory=EmptyWindows)
    """How much windows without the answer count in the loss."""

    def read_once(self, model: Network, scoring: Scoring) -> HeldOutQuestions:
        """Frozen or not, the encoder is run each time: the vectors of all tokens would fill a disk."""
        return self

    def found(self, model: Network, scoring: Scoring) -> tuple[AnsweringConfig, list[Found]]:
        scores = score_sequences(model, self.asked.sequences, scoring)
        return self._decoded(model, scores)

    def _decoded(self, model: Network, scores: Floats) -> tuple[AnsweringConfig, list[Found]]:
        head = head_of(model)
        assert isinstance(head, Answering)
        return head.config, list(decode(self.asked, scores, head.config, self.decoding))

    @cached_property
    def targets(self) -> AnswerSpans[Any]:
        """Where the answer stands in every window."""
        weighted = msgspec.structs.replace(self.empty, most=None)  # all windows are read, so all are counted
        return with_answers(self.asked, self.examples, weighted).targets(np.arange(len(self.asked.firsts)))

    def predictions(self, model: Network, scoring: Scoring) -> list[str]:
        """The answer to each question, empty for none."""
        config, found = self.found(model, scoring)
        return self.texts(found, config, self.decoding.threshold)

    def texts(self, found: list[Found], config: AnsweringConfig, threshold: float | None) -> list[str]:
        both = zip(self.asked.passages, found, strict=True)
        return [chosen_text(passage, one, config, threshold) for passage, one in both]

    def scores(self, model: Network, scoring: Scoring) -> Scores:
        scores = score_sequences(model, self.asked.sequences, scoring)
        config, found = self._decoded(model, scores)
        values = self._values(self.texts(found, config, self.decoding.threshold))
        if config.null:
            best = self.best(found, config)
            values |= {"best-f1": best.score, "best-threshold": best.threshold}
        head = head_of(model)
        assert isinstance(head, Answering)
        return Scores(metric=self.metric, values=values, validation_loss=mean_loss(head, scores, self.targets))

    def _values(self, texts: list[str]) -> dict[str, float]:
        version = "2.0" if self.null else "1.1"
        scored = [
            question_scores(one.golds, text, version=version)  # type: ignore[arg-type]
            for one, text in zip(self.examples, texts, strict=True)
        ]
        exact, f1 = np.mean(scored, axis=0).tolist()
        return {"f1": f1, "exact-match": exact}

    def against(self, found: list[Found], config: AnsweringConfig) -> list[float]:
        """By how much no answer is ahead of the best span, of each question."""
        return [float(null_score(one, config) or 0.0) for one in found]

    def best(self, found: list[Found], config: AnsweringConfig, metric: str = "f1") -> BestThreshold:
        """The threshold of no answer that gives these questions the highest F1, or exact match."""
        texts = self.texts(found, config, float("inf"))
        against = {str(n): value for n, value in enumerate(self.against(found, config))}
        golds = {str(n): one.golds for n, one in enumerate(self.examples)}
        which = 0 if metric == "exact-match" else 1
        scored = {own: question_scores(golds[own], texts[int(own)], version="2.0")[which] for own in golds}
        predictions = {str(n): text for n, text in enumerate(texts)}
        finite = [one for one in against.values() if np.isfinite(one)]
        lowest = min(finite, default=0.0) - 1.0
        return best_threshold(scored, against, golds=golds, predictions=predictions, lowest=lowest)

    def threshold(self, model: Network, scoring: Scoring) -> float:
        """The threshold of no answer that gives these questions the highest F1."""
        config, found = self.found(model, scoring)
        best = self.best(found, config).threshold
        return best if np.isfinite(best) else 0.0

    def calibration(self, model: Network, scoring: Scoring) -> Calibration:
        """A temperature that gives the right spans of these questions the highest likelihood among all legal ones."""
        head = head_of(model)
        assert isinstance(head, Answering)
        config = head.config
        scores = score_sequences(model, self.asked.sequences, scoring)
        cases: list[tuple[Any, float, float]] = []  # scores of a passage, of the right span, of no answer
        for one, passage, (pieces, null) in zip(
            self.examples, self.asked.passages, passage_scores(self.asked, scores), strict=True
        ):
            own, both_T2 = answer_tokens(passage, one), pieces[0][1]
            if one.impossible:
                right = null
            elif 0 < len(own) <= config.longest and own.stop <= len(both_T2):
                right = float(both_T2[own.start, 0] + both_T2[own.stop - 1, 1])
            else:
                continue
            if np.isfinite(right):
                cases.append((both_T2, right, null))
        cases = cases[:: max(1, -(-len(cases) // CALIBRATED_ON))]
        return _fitted(cases, config)


def _fitted(cases: Sequence[tuple[Any, float, float]], config: AnsweringConfig) -> Calibration:
    """From the scores of passages, of the right span of each and of no answer."""
    if not cases:
        return Calibration()

    def losses(some: Sequence[tuple[Any, float, float]], heat: float) -> list[float]:
        found = []
        for both_T2, right, null in some:
            total = best_spans(both_T2[:, 0], both_T2[:, 1], longest=config.longest, top=1, temperature=heat)[1]
            total = float(np.logaddexp(total, null / heat)) if config.null else total
            found.append(total - right / heat)
        return found

    def likeliest(some: Sequence[tuple[Any, float, float]]) -> float:
        low, high = np.log(COLDEST), np.log(HOTTEST)
        found = _lowest(lambda heat: float(np.mean(losses(some, float(np.exp(heat))))), low, high)
        ends = (abs(found - low) < 0.01, abs(found - high) < 0.01)  # closer the search does not come
        return COLDEST if ends[0] else HOTTEST if ends[1] else float(np.exp(found))

    fitted, halves = likeliest(cases), (cases[::2], cases[1::2])
    if len(halves[1]) < 2:
        return judged(Calibration(fitted=fitted))
    warm = [loss for own, other in (halves, halves[::-1]) for loss in losses(own, likeliest(other))]
    return judged(
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


def metric_of_answers(config: AnsweringConfig, asked: str | None = None) -> str:
    known = WITH_NULL if config.null else METRICS
    if asked is not None and asked not in known:
        raise UsageError(f"--metric {asked} does not score this task{did_you_mean(asked, known)}")
    return asked or known[0]


def hold_out_questions(
    bundle: Bundle,
    dev: Dataset[QuestionExample],
    settings: FineTuneConfig,
    options: AnswerOptions,
    *,
    null: bool,
    metric: str = "f1",
) -> HeldOutQuestions:
    """Questions to score a model on."""
    for one in dev:
        if not one.known or (one.impossible and not null):
            said = "its answer is not given" if not one.known else "it has no answer, and the model always gives one"
            raise DataError(f"{one.place}: {said}, so it cannot be scored; drop it")
    asked = encode_questions(bundle, dev.examples, settings, options)
    return HeldOutQuestions(asked, dev.examples, null, metric, options.decoding, options.empty)


def finetune_answers(
    bundle: Bundle,
    train: Dataset[QuestionExample],
    dev: Dataset[QuestionExample] | None,
    job: Job,
    options: AnswerOptions = AnswerOptions(),
) -> Tuned:
    """Answer questions from passages."""
    train, dev = parted(train, dev, job)
    for one in train:
        if not one.known:
            raise DataError(f"{one.place}: its answer is not given, so nothing can be learnt from it; drop it")
    job = dataclasses.replace(job, config=job.config.settled("answer", len(train)))
    config = answering_head(train, options, head=job.head, natural=natural_head(bundle, "answering"))
    if not config.whole_words:
        job.watch.say("answers may begin and end inside words, as those of the training examples do")
    asked = encode_questions(bundle, train.examples, job.config, options)
    data: AskedAndAnswered = with_answers(asked, train.examples, options.empty, seed=job.seeds[0])
    job.watch.say(_described(data))
    metric = metric_of_answers(config, job.metric)
    held = hold_out_questions(bundle, dev, job.config, options, null=config.null, metric=metric) if dev else None
    tuned = tuned_with_head(bundle, config, data, job, held=held, train=train, dev=dev)
    return _with_threshold(tuned, held, scoring_of(job.runtime)) if held is not None and config.null else tuned


def _described(data: AskedAndAnswered) -> str:
    sequences, with_answer = int(data.kept.sum()), int(((data.starts > 0) & data.kept).sum())
    said = f"{len(data):,} questions in {sequences:,} windows, of which {with_answer:,} hold the answer"
    return f"{said}; {data.lost:,} answers are in no window" if data.lost else said


def _with_threshold(tuned: Tuned, held: HeldOutQuestions, scoring: Scoring) -> Tuned:
    """The threshold of no answer fitted, and the scores that it gives."""
    model = tuned.bundle.network
    head = head_of(model)
    assert isinstance(head, Answering)
    head.config = msgspec.structs.replace(head.config, threshold=held.threshold(model, scoring))
    bundle = dataclasses.replace(tuned.bundle, objectives=(head.config,))
    return dataclasses.replace(tuned, bundle=bundle, scores=held.scores(model, scoring))
