"""Unit vectors of the distinct texts of a set, from a model or from TF-IDF.

    vectors = embed_distinct(lv.load(), ["the river", "the town", "the river"])       # two texts go through the model
    vectors.cosines(["the river"], ["the town"])

Every text is embedded once, however often a set names it, and in the way of the model (`inference/vectors/
own_pooling.py`). TF-IDF is the baseline that sees words only: an encoder that is not better than it has learned nothing
that a set asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from larvatus.core.arrays import Doubles, Floats
from larvatus.core.errors import DataError, UsageError

AT_ONCE = 1_024
"""Texts between two reports of progress."""
BLOCK = 1 << 24
"""Similarities in memory."""
MODEL, TF_IDF, BM25 = "model", "TF-IDF", "BM25"
"""Names of systems in results."""


class Embeds(Protocol):
    """A model that gives vectors [n, D] of n texts."""

    def embed(self, texts: Sequence[str]) -> Any: ...


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Vectors of length 1 by text; a text without a vector, such as one without known words, has zeros."""

    rows: Mapping[str, int]
    matrix: Any
    """[U, D] float32, or a sparse matrix of SciPy."""

    def of(self, texts: Sequence[str]) -> Any:
        """[n, D] vectors of texts, dense or sparse."""
        return self.matrix[[self.rows[text] for text in texts]]

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Doubles:
        """[n] cosine of each text with the text at the same place."""
        a, b = self.of(first), self.of(second)
        products = a.multiply(b) if hasattr(a, "multiply") else a.astype(np.float64) * b
        return np.asarray(products.sum(1), np.float64).reshape(-1)

    def similarities(self, queries: Sequence[str], documents: Sequence[str]) -> Iterator[Floats]:
        """[documents] cosines of each query with all documents."""
        query_QD, document_ND = self.of(queries), self.of(documents)
        step = max(1, BLOCK // max(1, len(documents)))
        for begin in range(0, len(queries), step):
            block_QN = query_QD[begin : begin + step] @ document_ND.T
            yield from block_QN.toarray() if hasattr(block_QN, "toarray") else block_QN


def embed_distinct(
    model: Embeds, texts: Iterable[str], *, progress: Callable[[int], None] = lambda done: None
) -> VectorTable:
    """Unit vectors of a model, each distinct text once; `progress` gets how many are computed."""
    distinct = sorted(dict.fromkeys(texts), key=len, reverse=True)
    if not distinct:
        raise DataError("there are no texts to embed; check the files")
    parts = []
    for begin in range(0, len(distinct), AT_ONCE):
        parts.append(np.asarray(model.embed(distinct[begin : begin + AT_ONCE]), np.float32))
        progress(min(begin + AT_ONCE, len(distinct)))
    matrix_UD = np.concatenate(parts)
    bad = np.flatnonzero(~np.isfinite(matrix_UD).all(1))
    if len(bad):
        raise DataError(f"the vector of {distinct[bad[0]]!r:.80} is not finite; the model's weights may be damaged")
    lengths = np.linalg.norm(matrix_UD, axis=1, keepdims=True)
    return VectorTable(_numbered(distinct), matrix_UD / np.maximum(lengths, 1e-12))


def tf_idf(texts: Iterable[str]) -> VectorTable:
    """TF-IDF of words, with the document frequencies of the texts themselves; no labels are seen."""
    distinct = list(dict.fromkeys(texts))
    words = scikit_learn("feature_extraction.text").TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    try:
        matrix = words.fit_transform(distinct)
    except ValueError as fault:  # an empty vocabulary
        raise DataError(f"TF-IDF finds no words in the texts ({fault}); leave baselines out") from fault
    return VectorTable(_numbered(distinct), matrix.tocsr())


def scikit_learn(module: str) -> Any:
    """A module of scikit-learn, which classification, clustering and TF-IDF need."""
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as fault:
        raise UsageError(
            "classification, clustering and the TF-IDF baseline need scikit-learn, which is not installed; run: "
            'pip install "larvatus[maps]"'
        ) from fault


def _numbered(texts: Sequence[str]) -> dict[str, int]:
    return {text: row for row, text in enumerate(texts)}
