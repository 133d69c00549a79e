"""Metrics of tasks as scores of what each example adds: what intervals and paired tests resample.

    found = resampled_classes(gold, answers, kind="multi-class", classes=3)
    bootstrap(found["macro-f1"].rows, found["macro-f1"].score)

Names and values are those of `held_out.class_metrics` and `held_out.tag_metrics`. Sentences are resampled, not words,
because the words of a sentence depend on each other.

Accuracy, F1 and Matthews correlation depend only on three counts of each class: correctly predicted, predicted, gold.
Summed over any sample of examples [3, K], they give the score of that sample; over many [R, 3, K], all scores at once.

    >>> rows = class_sums([0, 1, 1, 2], [0, 1, 2, 2], classes=3)        # [4, 3, 3]
    >>> round(float(macro_f1(rows.sum(0))), 4)
    0.7778
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.metrics.classification import ClassCounts, divide
from larvatus.metrics.entities import Entities, entity_counts
from larvatus.metrics.intervals import Interval, Of, Score, bootstrap
from larvatus.metrics.ranking import pearson, spearman
from larvatus.models.heads.classification import Kind

ScoreOfSums = Callable[[Doubles], Doubles]
"""[…, 3, K] → […]"""


def class_sums(gold: npt.ArrayLike, predicted: npt.ArrayLike, *, classes: int) -> Doubles:
    """[items, 3, classes] of items that have one class each."""
    a, b = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"scores need as many predictions as labels, not {a.shape} and {b.shape}")
    return multi_label_sums(_one_hot(a, classes), _one_hot(b, classes))


def multi_label_sums(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> Doubles:
    """[items, 3, labels] of tables of truth [items, labels]: several labels at once."""
    a, b = np.asarray(gold, np.bool_), np.asarray(predicted, np.bool_)
    return np.stack([a & b, b, a], axis=1).astype(np.float64)


def sums_of_counts(counts: ClassCounts) -> Doubles:
    """[texts, 3, types] of counts [texts, types], such as those of `entity_counts`."""
    return np.stack([counts.right, counts.predicted, counts.gold], axis=1).astype(np.float64)


def _one_hot(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    return np.asarray(classes[:, None] == np.arange(count))


def accuracy(sums: Doubles) -> Doubles:
    """Score of items that have one class each."""
    return divide(sums[..., 0, :].sum(-1), sums[..., 2, :].sum(-1))


def micro_f1(sums: Doubles) -> Doubles:
    return _f1(sums.sum(-1, keepdims=True))[..., 0]


def macro_f1(sums: Doubles) -> Doubles:
    """Over the classes that occur in the sample."""
    occurs = sums[..., 1, :] + sums[..., 2, :] > 0
    return divide(_f1(sums).sum(-1), occurs.sum(-1))


def f1_of(positive: int) -> ScoreOfSums:
    """F1 of one class."""
    return lambda sums: _f1(sums)[..., positive]


def matthews(sums: Doubles) -> Doubles:
    """Score of items that have one class each."""
    right, predicted, gold = sums[..., 0, :].sum(-1), sums[..., 1, :], sums[..., 2, :]
    total = gold.sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1))
    return divide(right * total - (gold * predicted).sum(-1), np.sqrt(spread))


def _f1(sums: Doubles) -> Doubles:
    return divide(2 * sums[..., 0, :], sums[..., 1, :] + sums[..., 2, :])


EntityPair = tuple[Sequence[Entities], Sequence[Entities]]
LOWER_IS_BETTER = frozenset({"hamming", "rmse"})


@dataclass(frozen=True, eq=False)
class ResampledMetric:
    rows: Doubles
    """[E, …] of each example."""
    score: Score
    of: Of = "sums"

    def interval(self, *, samples: int, seed: int) -> Interval:
        return bootstrap(self.rows, self.score, of=self.of, samples=samples, seed=seed)


def resampled_classes(
    gold: npt.NDArray[np.generic],
    answers: npt.NDArray[np.generic],
    *,
    kind: Kind,
    classes: int,
    binary: bool | None = None,
) -> dict[str, ResampledMetric]:
    """Metrics of answers: classes [E], truths [E, K] or numbers [E].

    `binary` says whether the model has two classes, of which the second has an F1; None: if there are two in all.
    """
    if kind == "regression":
        pairs = np.stack([answers, gold], axis=1).astype(np.float64)
        squares = (pairs[:, 0] - pairs[:, 1]) ** 2
        return {
            "spearman": ResampledMetric(pairs, lambda rows: spearman(rows[:, 0], rows[:, 1]), "rows"),
            "pearson": ResampledMetric(pairs, lambda rows: pearson(rows[:, 0], rows[:, 1]), "rows"),
            "rmse": ResampledMetric(_counted(squares), lambda sums: np.sqrt(_mean(sums))),
        }
    if kind == "multi-label":
        wrong = np.asarray(gold, np.bool_) != np.asarray(answers, np.bool_)
        rows = multi_label_sums(gold, answers)
        return {
            "micro-f1": ResampledMetric(rows, micro_f1),
            "macro-f1": ResampledMetric(rows, _f1_of_all),
            "exact-match": ResampledMetric(_counted(~wrong.any(1)), _mean),
            "hamming": ResampledMetric(_counted(wrong.mean(1)), _mean),
        }
    rows = class_sums(gold, answers, classes=classes)
    scores: dict[str, Score] = {
        "accuracy": accuracy,
        "macro-f1": macro_f1,
        "matthews": matthews,
    }
    if classes == 2 if binary is None else binary:
        scores["f1"] = f1_of(1)
    return {name: ResampledMetric(rows, score) for name, score in scores.items()}


def resampled_words(right_E: npt.ArrayLike, words_E: npt.ArrayLike) -> dict[str, ResampledMetric]:
    """Accuracy, of the right words and all words of each sentence."""
    rows = np.stack([np.asarray(right_E, np.float64), np.asarray(words_E, np.float64)], axis=1)
    return {"accuracy": ResampledMetric(rows, _mean)}


def resampled_entities(gold: Sequence[Entities], answers: Sequence[Entities]) -> dict[str, ResampledMetric]:
    """Metrics of the entities of each sentence."""
    _, counts = entity_counts(gold, answers)
    rows = sums_of_counts(counts)
    return {
        "entity-f1": ResampledMetric(rows, micro_f1),
        "precision": ResampledMetric(rows, lambda sums: divide(sums[..., 0, :].sum(-1), sums[..., 1, :].sum(-1))),
        "recall": ResampledMetric(rows, lambda sums: divide(sums[..., 0, :].sum(-1), sums[..., 2, :].sum(-1))),
        "macro-f1": ResampledMetric(rows, macro_f1),
    }


def resampled_tags(lenient: EntityPair, strict: EntityPair) -> dict[str, ResampledMetric]:
    """Metrics of the entities in gold and predicted tags, read leniently, and the F1 of those read strictly."""
    return {**resampled_entities(*lenient), "entity-f1-strict": resampled_entities(*strict)["entity-f1"]}


def _counted(values: npt.ArrayLike) -> Doubles:
    """[E, 2] of values whose mean is the score."""
    column = np.asarray(values, np.float64)
    return np.stack([column, np.ones_like(column)], axis=1)


def _mean(sums: Doubles) -> Doubles:
    return divide(sums[..., 0], sums[..., 1])


def _f1_of_all(sums: Doubles) -> Doubles:
    """Over all labels, those that never occur too."""
    return np.asarray(_f1(sums).mean(-1))


def resampled_mean(values: npt.ArrayLike) -> ResampledMetric:
    """A metric that is the mean of a value of each example."""
    return ResampledMetric(_counted(values), _mean)
