"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2 compute them.

    >>> question_scores(["the Denver Broncos", "Denver"], "Broncos of Denver.")
    (0.0, 0.8)

Answers are compared in lower case, without ASCII punctuation, the articles a, an and the, and extra white space. F1 is
that of their words as bags; of several right answers the closest counts. The versions differ in two things: if
nothing is left of a text, version 1.1 gives F1 0, even to two such texts, and version 2 gives 1 if both are empty; and
a question without a prediction scores 0 in version 1.1, while version 2 requires all predictions. Scores are shares of
1; the scripts print them in percent.
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
    """An answer in the form in which answers are compared.

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
class BestThreshold:
    """The score that the best threshold would give: above it, a question counts as not answered."""

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
