"""Scores of whole prediction files by the rules of SQuAD's official scripts: the oracle of `evaluate` on answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from larvatus.core.errors import DataError
from larvatus.metrics.squad import BestThreshold, best_threshold, question_scores


@dataclass(frozen=True)
class SquadScores:
    exact: float
    f1: float
    total: int
    missing: int = 0
    """Questions without a prediction (version 1.1), which score 0."""


@dataclass(frozen=True)
class Squad2Scores(SquadScores):
    """With the two kinds of questions apart; None where there are none of a kind."""

    has_answer: SquadScores | None = None
    no_answer: SquadScores | None = None
    best_exact: BestThreshold | None = None
    best_f1: BestThreshold | None = None


def squad_scores(golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> SquadScores:
    """Version 1.1: right answers and predictions by the ids of questions."""
    if not golds:
        raise DataError("there are no questions to score")
    exact = f1 = 0.0
    for question, texts in golds.items():
        if question in predictions:
            scores = question_scores(texts, predictions[question])
            exact, f1 = exact + scores[0], f1 + scores[1]
    missing = sum(question not in predictions for question in golds)
    return SquadScores(exact=exact / len(golds), f1=f1 / len(golds), total=len(golds), missing=missing)


def squad2_scores(
    golds: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    *,
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> Squad2Scores:
    """Version 2: a question has no right answers where it cannot be answered, and its right prediction is empty.

    `no_answer` says for each question how much speaks against an answer: those above the threshold count as not
    answered, whatever was predicted.
    """
    if not golds:
        raise DataError("there are no questions to score")
    if absent := [question for question in golds if question not in predictions]:
        raise DataError(f"{len(absent):,} questions have no prediction, {absent[0]} among them; predict all of them")
    raw = {question: question_scores(texts, predictions[question], version="2.0") for question, texts in golds.items()}
    against = dict.fromkeys(golds, 0.0) if no_answer is None else no_answer
    if absent := [question for question in golds if question not in against]:
        raise DataError(f"{absent[0]} has no score for being without an answer; give one for each question")
    final = {
        question: (float(not golds[question]),) * 2 if against[question] > threshold else scores
        for question, scores in raw.items()
    }
    has = [question for question, texts in golds.items() if texts]
    without = [question for question, texts in golds.items() if not texts]
    both = [
        best_threshold(
            {question: scores[which] for question, scores in raw.items()}, against, golds=golds, predictions=predictions
        )
        for which in (0, 1)
    ]
    mean = _mean(final, list(golds))
    assert mean is not None
    return Squad2Scores(
        exact=mean.exact,
        f1=mean.f1,
        total=mean.total,
        has_answer=_mean(final, has),
        no_answer=_mean(final, without),
        best_exact=both[0],
        best_f1=both[1],
    )


def _mean(scores: Mapping[str, tuple[float, ...]], questions: Sequence[str]) -> SquadScores | None:
    if not questions:
        return None
    exact, f1 = (sum(scores[question][which] for question in questions) / len(questions) for which in (0, 1))
    return SquadScores(exact=exact, f1=f1, total=len(questions))
