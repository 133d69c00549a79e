"""Pairs of texts: cosines against scores of people (STS), and against yes or no (pair classification).

    similarity_metrics(vectors.cosines(first, second), scores)       # spearman, pearson (Cer et al. 2017)
    matching_metrics(vectors.cosines(first, second), labels)         # average precision, best accuracy

Spearman's ρ asks only for the order of the cosines, Pearson's r for proportions. Both have bootstrap intervals over
pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.metrics.bootstrap import Interval, bootstrap
from larvatus.metrics.correlation import pearson, spearman
from larvatus.metrics.thresholds import average_precision_of_scores, best_accuracy

POSITIVE = {"1", "1.0", "true", "yes", "paraphrase", "duplicate", "match", "entailment"}
"""Labels of pairs that match, in small letters."""


def similarity_metrics(cosines: Doubles, scores: npt.ArrayLike, *, samples: int = 1000) -> dict[str, Interval]:
    """Spearman and Pearson of cosines and scores."""
    wanted = np.asarray(scores, np.float64)
    if len(wanted) < 2 or (wanted == wanted[0]).all():
        raise DataError("a correlation needs two pairs or more, with different scores")
    return _over_pairs(cosines, wanted, {"spearman": spearman, "pearson": pearson}, samples)


def matching_metrics(cosines: Doubles, matches: npt.ArrayLike, *, samples: int = 1000) -> dict[str, Interval]:
    """Average precision of the pairs that match, and accuracy with the best threshold of these pairs."""
    truth = np.asarray(matches, np.float64)
    if len(np.unique(truth)) < 2:
        raise DataError("pair classification needs pairs that match and pairs that do not")
    metrics = {"average precision": average_precision_of_scores, "best accuracy": best_accuracy}
    return _over_pairs(cosines, truth, metrics, samples)


def matching_labels(labels: Sequence[Any]) -> Doubles:
    """1 for pairs that match, 0 for others, from two labels such as 0 and 1, no and yes.

    >>> matching_labels(["paraphrase", "not_paraphrase"]).tolist()
    [1.0, 0.0]
    """
    names = sorted({str(label) for label in labels})
    matching = [name for name in names if name.casefold() in POSITIVE]
    if len(names) != 2 or len(matching) != 1:
        shown = ", ".join(names[:5])
        raise DataError(
            f"the labels of pairs are {shown}; pair classification needs two, of which one is 1, true, yes, "
            "paraphrase, duplicate, match or entailment"
        )
    return np.array([float(str(label) == matching[0]) for label in labels])


def _over_pairs(
    cosines: Doubles, wanted: Doubles, metrics: Mapping[str, Callable[[Doubles, Doubles], float]], samples: int
) -> dict[str, Interval]:
    pairs = np.stack([cosines, wanted], axis=1)

    def of(metric: Callable[[Doubles, Doubles], float]) -> Interval:
        return bootstrap(pairs, lambda rows: metric(rows[:, 0], rows[:, 1]), of="rows", samples=samples)

    return {name: of(metric) for name, metric in metrics.items()}
