"""Clustering: mini-batch k-means (Sculley 2010) of vectors into as many clusters as there are labels, and V-measure.

    clustering_metrics(vectors, labels, draws=10)["v-measure"].value

As in MTEB (Muennighoff et al. 2023). k-means depends on where it starts: the score is the mean over several seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from larvatus.core.errors import DataError
from larvatus.evaluation.vectors.text_vectors import scikit_learn
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.clustering import v_measure_interval

BATCH = 512
"""Documents of a step of k-means."""


def clustering_metrics(vectors: Any, labels: Sequence[str], *, draws: int) -> dict[str, Interval]:
    """V-measure of vectors [n, D], dense or sparse, over documents and the seeds 0, 1, … of k-means."""
    classes = len(set(labels))
    if not 2 <= classes < len(labels):
        raise DataError(f"clustering needs two labels or more, and more documents than labels, not {classes} labels "
                        f"of {len(labels)} documents")  # fmt: skip
    means = scikit_learn("cluster").MiniBatchKMeans
    with warnings.catch_warnings():
        # equal vectors give fewer clusters than labels, which the score shows
        warnings.simplefilter("ignore", scikit_learn("exceptions").ConvergenceWarning)
        clusterings = [
            means(n_clusters=classes, batch_size=BATCH, n_init="auto", random_state=seed).fit_predict(vectors)
            for seed in range(draws)
        ]
    return {"v-measure": v_measure_interval(labels, clusterings)}
