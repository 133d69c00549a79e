"""Reciprocal-rank fusion (Cormack, Clarke & Büttcher 2009): several rankings of the same passages as one.

    score(d) = Σ_r 1 / (k + rank_r(d)),   k = 60

Only ranks count, so that cosines and BM25 scores need not be made comparable. A passage that a ranking lacks gets
nothing from it.

>>> a, b = (Matches(np.array(rows), np.zeros(len(rows))) for rows in ([7, 3], [3, 9]))
>>> fuse([a, b], top=3).rows.tolist()
[3, 7, 9]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.inference.search.exact import Matches, ranked

K = 60


def fuse(rankings: Sequence[Matches], *, top: int) -> Matches:
    """The `top` passages by the sum of their reciprocal ranks; equal ones in the order of the index."""
    rows, places = np.unique(np.concatenate([ranking.rows for ranking in rankings]), return_inverse=True)
    sums: Doubles = np.zeros(len(rows), dtype=np.float64)
    np.add.at(sums, places, np.concatenate([1.0 / (K + np.arange(1, len(each) + 1)) for each in rankings]))
    return ranked(rows, sums, top)
