"""A bag of words as a baseline: is an encoder worth it on these texts?

    answers = bag_of_words(train, held_out)                      # labels of held-out texts, from words and characters
    both = compare_with_baseline(gold, answers, model_answers, labels=labels)      # `report.py`
    both.outcome, both.verdict

The bag of words is TF-IDF with logistic regression (`linear.py`), fitted on the texts that a classifier was trained on.
Its penalty is chosen by cross-validation within them, or is the middle one of many texts, for which the choice costs
more than it gains.
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.metrics.calibration import negative_log_likelihood
from larvatus.tasks.candidates.linear import TermCounts
from larvatus.tasks.candidates.search import FOLDS, PENALTIES, assign_folds

MOST = 3_000
"""Most texts of a comparison: the products of all pairs are held in memory."""
CHOSEN_UP_TO = 1_000
"""Most training texts for which the penalty is chosen."""


def bag_of_words(train: Dataset[TextExample], held_out: Dataset[TextExample]) -> list[str]:
    """The label that TF-IDF with logistic regression gives to each held-out text."""
    labels = sorted({str(example.label) for example in train})
    if len(labels) < 2:
        raise DataError(f"{train.source}: a bag of words needs two classes to learn")
    counts = TermCounts.of([example.text for example in (*train, *held_out)])
    trained = np.arange(len(train) + len(held_out)) < len(train)
    y = np.array([labels.index(str(example.label)) for example in train] + [0] * len(held_out), np.int64)
    penalty = _best_penalty(train, y[trained], classes=len(labels))
    (logits,) = counts.predict(y, trained, classes=len(labels), penalties=[penalty])
    return [labels[number] for number in logits[~trained].argmax(1).tolist()]


def _best_penalty(train: Dataset[TextExample], y: Ints, *, classes: int) -> float:
    """The penalty of the lowest cross-validated loss; the middle one of too few texts for folds, and of many."""
    middle = PENALTIES[len(PENALTIES) // 2]
    if len(train) > CHOSEN_UP_TO:
        return middle
    try:
        fold = assign_folds(train, FOLDS)
    except DataError:  # too few different texts
        return middle
    counts = TermCounts.of([example.text for example in train])
    predicted = np.zeros((len(PENALTIES), len(y), classes))
    for number in range(FOLDS):
        test = fold == number
        for place, logits in enumerate(counts.predict(y, ~test, classes=classes, penalties=PENALTIES)):
            predicted[place, test] = logits[test]
    losses = [negative_log_likelihood(each, y, kind="softmax") for each in predicted]
    return PENALTIES[int(np.argmin(losses))]
