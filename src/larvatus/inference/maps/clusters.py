"""Instances of words as points in the plane, their clusters, and the words that are typical of each.

    flat = project(vectors, method="auto", seed=0)
    flat.points, flat.method, flat.note                 # [N, 2], 'umap', or 'pca' and why
    numbers = cluster(vectors, seed=0)                  # [N] 0, 1, … by size, the largest first
    names = typical_words(contexts, numbers)            # ['river, water, flood', 'loan, money, account']

**Projection**: UMAP (McInnes et al. 2018), or two principal components without UMAP. UMAP keeps neighbours together, by
cosine; distances between groups mean little. Principal components keep the directions of largest variance. The same
vectors and seed give the same points.

**Clusters** are computed from the vectors, not from the map: k-means over their leading principal components, for the k
with the best silhouette (Rousseeuw 1987), or the largest k within 10% of it; one cluster if no silhouette reaches
`WORTHWHILE`.

**Typical words**: the log-odds of a word in a cluster are significantly higher than in the other clusters, with the
whole as prior (Monroe et al. 2008, *Fightin' words*, eq. 16, 22): counts y, n words in all, prior α_w = y_w of all, α_0
its sum;

    δ_w = log (y_w + α_w)/(n + α_0 − y_w − α_w) − the same of the others
    z_w = δ_w / √(1/(y_w + α_w) + 1/(y′_w + α_w))

A word names a cluster if z is above 1.64 and the word is three times as frequent in its sentences as elsewhere; five
times, if it is one of the most common words, which make up half of all text: in any language these are mostly function
words (`which`, `from`), whose counts vary with the style of a few texts. N instances.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.words import segment_words

Method = Literal["auto", "umap", "pca"]

FEWEST = 3
"""Least points of a map."""
FEWEST_FOR_UMAP = 10
"""With fewer points its graph of neighbours is meaningless and its first layout cannot be computed."""
NEIGHBOURS = 15


@dataclass(frozen=True, eq=False)
class Projection:
    points: Doubles
    """[N, 2]"""
    method: Literal["umap", "pca"]
    note: str = ""
    """Why another method was used than the preferred one."""


def has_umap() -> bool:
    return find_spec("umap") is not None


def project(vectors: npt.NDArray[np.float32], *, method: Method = "auto", seed: int = 0) -> Projection:
    """[N, D] → [N, 2]."""
    count = len(vectors)
    if count < FEWEST:
        raise DataError(f"a map needs at least {FEWEST} instances, and there {_are(count)}; give more text")
    if method == "pca":
        return Projection(principal_components(vectors, 2), "pca")
    if not has_umap():
        if method == "umap":
            raise UsageError('UMAP is not installed; pip install "larvatus[maps]", or use --method pca')
        return Projection(
            principal_components(vectors, 2), "pca", 'UMAP is not installed (pip install "larvatus[maps]")'
        )
    if count < FEWEST_FOR_UMAP:
        if method == "umap":
            raise DataError(
                f"UMAP needs at least {FEWEST_FOR_UMAP} instances, and there {_are(count)}; give more text, or use "
                "--method pca"
            )
        note = f"UMAP needs at least {FEWEST_FOR_UMAP} instances, and there {_are(count)}"
        return Projection(principal_components(vectors, 2), "pca", note)
    return Projection(_umap(vectors, seed), "umap")


def _are(count: int) -> str:
    return {0: "is none", 1: "is 1"}.get(count, f"are {count}")


def _umap(vectors: npt.NDArray[np.float32], seed: int) -> Doubles:
    with warnings.catch_warnings():  # warnings of its dependencies, of threads, and of disconnected parts
        warnings.simplefilter("ignore")
        from umap import UMAP

        flat = UMAP(
            n_components=2,
            n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
            min_dist=0.1,
            metric="cosine",
            random_state=seed,
            n_jobs=1,  # a seed implies it
        ).fit_transform(vectors)
    points: Doubles = np.asarray(flat, dtype=np.float64)
    return np.where(np.isfinite(points), points, 0.0)  # points without neighbours get no position


def principal_components(vectors: npt.NDArray[np.floating], count: int) -> Doubles:
    """The first principal components of rows, [N, D] → [N, count]; each one's largest loading is positive."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)  # D × D, whatever the number of rows; ascending
    axes = axes[:, ::-1][:, :count]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    flat: Doubles = centred @ axes
    return np.pad(flat, ((0, 0), (0, count - flat.shape[1])))


# Clusters, and their typical words.

MAX_CLUSTERS = 8
"""Most clusters that are tried."""
WORTHWHILE = 0.1
"""Least silhouette of a clustering."""
_DIMENSIONS = 20
_SMALLEST = 5  # instances a cluster, on average
_WORD = re.compile(r"[^\W\d_]{3,}|[^\W\d_\u0000-\u024f]+")  # words of one or two Latin letters say little
_SIGNIFICANT = 1.64  # in standard deviations: one in twenty by chance
_TIMES = 3  # as frequent as elsewhere
_TIMES_OF_COMMON = 5
_COMMON = 1 / 2  # of all words that are read
_AS_GOOD = 0.9


def can_cluster() -> bool:
    return find_spec("sklearn") is not None


def cluster(vectors: npt.NDArray[np.float32], *, seed: int = 0, limit: int = MAX_CLUSTERS) -> Ints:
    """[N, D] → [N] cluster numbers, by size."""
    count = len(vectors)
    tried = range(2, min(limit, count // _SMALLEST) + 1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    if not tried or len(np.unique(unit, axis=0)) <= tried[-1]:
        return np.zeros(count, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sklearn.cluster import KMeans
        from sklearn.metrics import silhouette_score

        small = principal_components(unit, min(_DIMENSIONS, unit.shape[1], count - 1))
        labelled = [KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(small) for k in tried]
        size = min(count, 2_000)
        scores = [silhouette_score(small, labels, sample_size=size, random_state=seed) for labels in labelled]
    if max(scores) < WORTHWHILE:
        return np.zeros(count, np.int64)
    chosen = max(k for k, score in enumerate(scores) if score >= _AS_GOOD * max(scores))
    return by_size(labelled[chosen].astype(np.int64))


def by_size(numbers: Ints) -> Ints:
    """The same clusters, numbered by size, largest first; the earlier of equal ones first.

    >>> by_size(np.array([4, 7, 7, 4, 7])).tolist()
    [1, 0, 0, 1, 0]
    """
    names, first, inverse, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    ranks = np.empty(len(names), np.int64)
    ranks[order] = np.arange(len(names))
    return ranks[inverse]


def context_words(text: str, leave_out: Iterable[str]) -> list[str]:
    """The words of a sentence, lower-cased: those of letters, and none of `leave_out`."""
    without = {word.casefold() for word in leave_out}
    words = (text[start:end] for start, end in segment_words(text).tolist())
    return [word.lower() for word in words if _WORD.fullmatch(word) and word.casefold() not in without]


def typical_words(contexts: Sequence[Sequence[str]], numbers: Ints, *, top: int = 3) -> list[str]:
    """A distinct name for each cluster: its most typical words, or its number if it has none."""
    sizes = np.bincount(numbers).tolist()
    if len(sizes) == 1:
        return ["all"]
    counts: list[Counter[str]] = [Counter() for _ in sizes]
    for words, number in zip(contexts, numbers.tolist(), strict=True):
        counts[number].update(set(words))  # number of sentences, so that one odd sentence counts once
    names: list[str] = []
    common = common_words(contexts)
    for number, inside in enumerate(counts):
        others = sum((other for other in counts if other is not inside), Counter[str]())
        elsewhere = max(1, len(numbers) - sizes[number])
        scores = log_odds(inside, others)
        words = [
            word
            for word in inside
            if inside[word] > 1
            and scores[word] > _SIGNIFICANT
            and inside[word] / sizes[number]
            >= (_TIMES_OF_COMMON if word in common else _TIMES) * others[word] / elsewhere
        ]
        name = ", ".join(sorted(words, key=lambda word: (-scores[word], word))[:top])
        taken = not name or name in names
        names.append(f"{name} ({number + 1})".strip() if taken and name else name or f"cluster {number + 1}")
    return names


def common_words(contexts: Sequence[Sequence[str]], share: float = _COMMON) -> set[str]:
    """The most common words that together make up a share of all text.

    >>> sorted(common_words([["the", "river", "the"], ["the", "loan", "and"]], 0.5))
    ['the']
    """
    counts = Counter(word for words in contexts for word in words)
    wanted, commonest = share * counts.total(), set[str]()
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if wanted <= 0:
            break
        commonest.add(word)
        wanted -= count
    return commonest


def log_odds(inside: Counter[str], others: Counter[str]) -> dict[str, float]:
    """z of every word of a cluster against the others; see the docstring of this file."""
    n, m = inside.total(), others.total()
    prior = n + m
    scores = {}
    for word, count in inside.items():
        other = others[word]
        a = count + other
        odds = math.log((count + a) / (n + prior - count - a)) if n + prior > count + a else math.inf
        against = math.log((other + a) / (m + prior - other - a)) if m + prior > other + a else math.inf
        difference = 0.0 if odds == against else odds - against
        scores[word] = difference / math.sqrt(1 / (count + a) + 1 / (other + a))
    return scores
