"""How what was written is scored: as one of a few classes, or as a text that may be right in part.

    rows = resampled_texts(golds, answers, classes=("negative", "positive"))
    rows["accuracy"].interval(samples=1000, seed=0)

Classes: accuracy and macro F1; an answer that is no class is wrong. Texts: `f1` of their words as SQuAD counts it,
`exact-match` of the text as it stands but for spaces, and `squad-exact`, which passes over case, punctuation and
articles. Of several right texts the nearest counts. E examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.metrics.squad import question_scores
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_classes, resampled_words
from larvatus.tasks.validation import check_metric

OF_CLASSES = ("accuracy", "macro-f1")
OF_TEXTS = ("f1", "exact-match", "squad-exact")
Golds = Sequence[tuple[str, ...]]
"""The right texts of each example."""


def writing_metric(classes: Sequence[str], asked: str | None) -> str:
    """By which the best weights are chosen."""
    known = OF_CLASSES if classes else OF_TEXTS
    return known[0] if asked is None else check_metric(asked, known)


def resampled_texts(golds: Golds, answers: Sequence[str], *, classes: Sequence[str]) -> dict[str, ResampledMetric]:
    """What each example adds to the scores."""
    if classes:
        gold, given, count = as_numbers(golds, answers, classes)
        rows = resampled_classes(gold, given, kind="multi-class", classes=count)
        return {name: rows[name] for name in OF_CLASSES}
    pairs = list(zip(golds, answers, strict=True))
    squad = np.array([question_scores(right, answer) for right, answer in pairs], np.float64).reshape(-1, 2)
    same = np.array([is_right(right, answer) for right, answer in pairs], np.float64)
    return {"f1": _mean_of(squad[:, 1]), "exact-match": _mean_of(same), "squad-exact": _mean_of(squad[:, 0])}


def writing_scores(rows: dict[str, ResampledMetric]) -> dict[str, float]:
    """The scores of all examples."""
    return {name: float(metric.score(metric.rows.sum(0))) for name, metric in rows.items()}


def is_right(right: tuple[str, ...], answer: str) -> bool:
    """Whether a text is one of the right ones, but for spaces."""
    return _spaced(answer) in map(_spaced, right)


def as_numbers(golds: Golds, answers: Sequence[str], classes: Sequence[str]) -> tuple[Ints, Ints, int]:
    """Gold and given classes by number, and how many there are: those of the model, then those that it does not know.

    An answer that is no class has a number that no class has.
    """
    unknown = sorted({right[0] for right in golds} - set(classes))
    numbers = {name: number for number, name in enumerate([*classes, *unknown])}
    gold = np.array([numbers[right[0]] for right in golds], np.int64)
    given = np.array([numbers.get(answer, len(numbers)) for answer in answers], np.int64)
    return gold, given, len(numbers)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _mean_of(values_E: Doubles) -> ResampledMetric:
    return resampled_words(values_E, np.ones(len(values_E)))["accuracy"]
