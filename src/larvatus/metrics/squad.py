"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2 compute them.

    >>> squad_scores({"q": ["the Denver Broncos", "Denver"]}, {"q": "Broncos of Denver."})
    SquadScores(exact=0.0, f1=0.8, total=1, missing=0)

Answers are compared in lower case, without ASCII punctuation, the articles a, an and the, and spare white space. F1 is
that of their words as bags; of several right answers the nearest counts. The versions differ in two things: where
nothing is left of a text, version 1.1 gives F1 0, even to two such texts, and version 2 gives 1 if both are so; and a
question without a prediction scores 0 in version 1.1, while version 2 wants them all. Scores are shares of 1; the
scripts print them in percent.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from larvatus.core.errors import DataError

Version = Literal["1.1", "2.0"]
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """As answers are compared.

    >>> normalise_answer("The  cat's an\\tOwl.")
    'cats owl'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, prediction: str) -> float:
    return float(normalise_answer(gold) == normalise_answer(prediction))


def answer_f1(gold: str, prediction: str, *, version: Version = "1.1") -> float:
    """Overlap of the words of two answers."""
    wanted, guessed = normalise_answer(gold).split(), normalise_answer(prediction).split()
    if version == "2.0" and not (wanted and guessed):
        return float(wanted == guessed)
    same = (Counter(wanted) & Counter(guessed)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(guessed), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


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


@dataclass(frozen=True)
class BestThreshold:
    """The score that the best threshold would give: above it, a question is taken as not answered."""

    score: float
    threshold: float


def question_scores(golds: Sequence[str], prediction: str, *, version: Version = "1.1") -> tuple[float, float]:
    """Exact match and F1 of one prediction; in version 2, no golds mean that there is no answer."""
    if version == "2.0":
        golds = [gold for gold in golds if normalise_answer(gold)] or [""]
    if not golds:
        raise DataError("a question without a right answer cannot be scored under SQuAD 1.1; score it as version 2.0")
    return (
        max(exact_match(gold, prediction) for gold in golds),
        max(answer_f1(gold, prediction, version=version) for gold in golds),
    )


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


def best_threshold(
    scores: Mapping[str, float],
    no_answer: Mapping[str, float],
    *,
    golds: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    lowest: float = 0.0,
) -> BestThreshold:
    """The threshold under which the mean score is highest, as the script of version 2 finds it.

    It goes up through the questions' own values, from `lowest`, where no question is answered: one that has an answer
    adds its score, one that has none loses its point if something was predicted.
    """
    reached = best = float(sum(not texts for texts in golds.values()))
    threshold = lowest
    for question in sorted(no_answer, key=no_answer.__getitem__):
        if question not in scores:
            continue
        reached += scores[question] if golds[question] else -1.0 if predictions[question] else 0.0
        if reached > best:
            best, threshold = reached, no_answer[question]
    return BestThreshold(score=best / len(scores), threshold=threshold)
