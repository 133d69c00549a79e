"""TF-IDF of words, pairs of words and characters, with logistic regression: the baseline of small data.

    bag = TermCounts.of(texts)
    weak, strong = bag.predict(y_N, fold_N != 0, classes=3, penalties=(100, 10))    # logits, trained on other folds

Terms are words and pairs of words, and 2 to 5 characters within a word. A weight is (1 + ln tf) · idf, and each of the
two kinds of terms has unit length: scikit-learn's `TfidfVectorizer(sublinear_tf=True)`, which is no dependency here.
Vocabulary and document frequencies are those of the training rows only, so nothing of a test text is known.

Only the dot products of texts are computed: logistic regression with an L2 penalty depends on nothing else (the
representer theorem), and a thousand texts have a hundred times as many terms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.tasks.candidates.logistic import fit_logistic

WORD = re.compile(r"\b\w+\b")
CHARACTERS = range(2, 6)
BLOCK = 2_048
"""Terms in one dense block."""


def word_terms(text: str) -> Iterator[str]:
    """Words and pairs of neighbours, in small letters."""
    words = WORD.findall(text.lower())
    yield from words
    yield from map(" ".join, pairwise(words))


def character_terms(text: str) -> Iterator[str]:
    """Runs of 2 to 5 characters within a word and the spaces around it (`char_wb` of scikit-learn)."""
    for word in text.lower().split():
        padded = f" {word} "
        for size in CHARACTERS:
            yield padded[:size]
            yield from (padded[at : at + size] for at in range(1, len(padded) - size + 1))
            if size >= len(padded):  # a short word is one term, counted once
                break


@dataclass(frozen=True, eq=False)
class TermCounts:
    """Terms of texts by kind: row, number of the term, and count of each, in the order of the terms."""

    texts: int
    kinds: tuple[tuple[Ints, Ints, Ints], ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> TermCounts:
        return cls(len(texts), tuple(_counted(texts, terms) for terms in (word_terms, character_terms)))

    def kernel(self, trained: npt.NDArray[np.bool_]) -> Floats:
        """[N, T] cosines of all texts with the training texts, the sum of both kinds."""
        return np.asarray(sum(_cosines(kind, trained) for kind in self.kinds), np.float32)

    def predict(
        self, y_N: Ints, trained: npt.NDArray[np.bool_], *, classes: int, penalties: Sequence[float]
    ) -> list[Doubles]:
        """[N, K] logits of all texts for each penalty, from the labels of the training texts only."""
        kernel_NT = self.kernel(trained).astype(np.float64)
        values_T, vectors_TT = np.linalg.eigh(kernel_NT[trained])
        kept = values_T > 1e-6 * values_T.max()  # float32 products; equal texts have no direction of their own
        x_NR = kernel_NT @ (vectors_TT[:, kept] / np.sqrt(values_T[kept]))
        fits = fit_logistic(x_NR[trained], y_N[trained], classes=classes, penalties=penalties)
        return [fit.logits(x_NR) for fit in fits]


def _counted(texts: Sequence[str], terms: Callable[[str], Iterator[str]]) -> tuple[Ints, Ints, Ints]:
    numbers: dict[str, int] = {}
    entries = [
        (row, numbers.setdefault(term, len(numbers)), count)
        for row, text in enumerate(texts)
        for term, count in Counter(terms(text)).items()
    ]
    table = np.array(entries, np.int64).reshape(-1, 3)
    table = table[np.argsort(table[:, 1], kind="stable")]
    return table[:, 0], table[:, 1], table[:, 2]


def _cosines(kind: tuple[Ints, Ints, Ints], trained: npt.NDArray[np.bool_]) -> Floats:
    """[N, T] cosines of TF-IDF, by vocabulary and document frequencies of the training texts."""
    rows, terms, counts = kind
    frequency = np.bincount(terms[trained[rows]], minlength=int(terms.max(initial=-1)) + 1)
    known = frequency[terms] > 0
    rows, terms, counts = rows[known], terms[known], counts[known]
    idf = np.log((1 + trained.sum()) / (1 + frequency[terms])) + 1
    weights = (1 + np.log(counts)) * idf
    squares = np.bincount(rows, weights**2, minlength=len(trained))
    weights = (weights / np.sqrt(squares[rows])).astype(np.float32)
    order, numbers = np.unique(terms, return_inverse=True)
    products_NT = np.zeros((len(trained), int(trained.sum())), np.float32)
    for first in range(0, len(order), BLOCK):
        begin, end = np.searchsorted(numbers, [first, first + BLOCK])
        block_NB = np.zeros((len(trained), BLOCK), np.float32)
        block_NB[rows[begin:end], numbers[begin:end] - first] = weights[begin:end]
        products_NT += block_NB @ block_NB[trained].T
    return products_NT
