"""Classification from frozen vectors: logistic regression of a few examples of each class, in several draws.

    draws = [train.at(sample_shots(train.labels, shots=10, seed=seed)) for seed in range(10)]
    classification_metrics(vectors, draws, test)["accuracy"].value

Each draw has `shots` examples of every class, and its regression scores all test examples. Vectors are centred and
scaled by one number, so that the mean square length of a draw is 1 and the penalty weighs the same for all models
(sparse ones keep their length, which is 1). The interval of the accuracy has both factors resampled, draws and test
examples (`metrics/clusters.py`, Owen 2007), so few draws make it wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.evaluation.vectors.text_vectors import VectorTable, scikit_learn
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.clusters import crossed_mean

PENALTY, STEPS = 1.0, 1_000
"""Inverse weight of the penalty (C of scikit-learn, its default and that of MTEB), and most steps of the optimiser."""


@dataclass(frozen=True)
class LabelledSample:
    """Texts with a class each."""

    texts: Sequence[str]
    labels: Sequence[str]

    @classmethod
    def of(cls, data: Dataset[TextExample]) -> LabelledSample:
        """The texts of examples; pairs are refused."""
        for example in data:
            if example.pair is not None:
                raise UsageError(
                    f"{data.source} is read as pairs, but a class needs one text; name its columns (--text, --label)"
                )
        return cls([example.text for example in data], [str(example.label) for example in data])

    def at(self, places: Ints) -> LabelledSample:
        """Some of them."""
        return LabelledSample([self.texts[place] for place in places], [self.labels[place] for place in places])


def classification_metrics(
    vectors: VectorTable, draws: Sequence[LabelledSample], test: LabelledSample, *, samples: int = 1000
) -> dict[str, Interval]:
    """Accuracy over draws and test examples.

    Args:
        vectors: Vectors of all their texts.
        draws: Training examples of each draw.
        test: Test examples.
        samples: Samples of the bootstrap.
    """
    unknown = sorted(set(test.labels) - set(draws[0].labels))
    if unknown:
        raise DataError(f"the training examples have no class {unknown[0]!r:.60}, which test examples have; add some")
    vectors_ND, gold = vectors.of(test.texts), np.asarray(test.labels)
    right = np.stack([_predict(vectors.of(draw.texts), draw.labels, vectors_ND) == gold for draw in draws])
    return {"accuracy": crossed_mean(right, samples=samples)}


def sample_shots(labels: Sequence[str], *, shots: int, seed: int) -> Ints:
    """Places of `shots` examples of each class, at random without repetition; a smaller class is refused.

    >>> len(sample_shots(["a", "b", "a", "b", "a"], shots=2, seed=0))
    4
    """
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    if len(places) < 2:
        raise DataError("classification needs examples of two classes or more")
    small = min(places, key=lambda label: len(places[label]))
    if len(places[small]) < shots:
        raise DataError(f"class {small!r:.60} has {len(places[small])} training examples, fewer than shots: {shots}")
    sampled = [
        stream(seed, "shots of a class", 0, number).choice(places[label], shots, replace=False)
        for number, label in enumerate(sorted(places))
    ]
    return np.concatenate(sampled).astype(np.int64)


def _predict(vectors: Any, labels: Sequence[str], test: Any) -> Any:
    """Predictions for the test vectors."""
    if isinstance(vectors, np.ndarray):
        centre = vectors.mean(0)
        length = max(1e-12, float(np.sqrt(((vectors - centre) ** 2).sum(1).mean())))
        vectors, test = (vectors - centre) / length, (test - centre) / length
    regression = scikit_learn("linear_model").LogisticRegression(C=PENALTY, max_iter=STEPS)
    return regression.fit(vectors, labels).predict(test)
