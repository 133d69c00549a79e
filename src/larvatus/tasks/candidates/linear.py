"""Linear classifiers of small data: over TF-IDF, and over sentence vectors of a frozen model.

    weak, strong = TermCounts.of(texts).predict(y_N, fold_N != 0, classes=3, penalties=(100, 10))
    vectors = FrozenVectors.read(bundle, train, args)
    vectors.last, vectors.layers                     # [N, D] of the last layer, [N, 4 D] of the four highest
    model = vectors.model(LinearFit(weight, bias), layers=True)     # a `Bundle` that predicts the same

**Multinomial logistic regression** with an L2 penalty, fitted to convergence:

    minimise  C Σ_n −log softmax(W x_n + b)[y_n]  +  ½ ‖W‖²

This is scikit-learn's `LogisticRegression(C=C)` for several classes; the bias has no penalty. A problem of a thousand
examples is convex and small, so L-BFGS over all of them replaces the steps, epochs and rate of the trainer.

**TF-IDF** is the baseline. Terms are words and pairs of words, and 2 to 5 characters within a word. A weight is (1 + ln
tf) · idf, and each of the two kinds of terms has unit length: scikit-learn's `TfidfVectorizer(sublinear_tf=True)`,
which is no dependency here. Vocabulary and document frequencies are those of the training rows only, so nothing of a
test text is known. Only the dot products of texts are computed: logistic regression with an L2 penalty depends on
nothing else (the representer theorem), and a thousand texts have a hundred times as many terms.

**Sentence vectors** are computed once. A text is read as `larvatus finetune classify --trained head` reads it: by the
pooling of a sentence encoder, else the mean of its tokens; with the sentence adapter that a model may have, merged into
its weights. The vector of a long text is the mean of its windows, so its scores are the mean of theirs, as in
prediction. N examples, D features, K classes.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from msgspec import UNSET
from torch import Tensor

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head, sentence_bundle
from larvatus.models.heads import Classification, ClassificationConfig
from larvatus.tasks.classify.classify import merge_windows
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.classify.task import ClassifyTask
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import head_as
from larvatus.tasks.trainer.causal import with_delimiters
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.trainable import TrainableConfig

STEPS, TOLERANCE = 200, 1e-5
"""Most steps of L-BFGS, and the largest gradient at which it ends."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    weight: Doubles
    """[K, D]"""
    bias: Doubles
    """[K]"""

    def logits(self, x_ND: Floats | Doubles) -> Doubles:
        return np.asarray(x_ND @ self.weight.T + self.bias, np.float64)


def fit_logistic(x_ND: Floats | Doubles, y_N: Ints, *, classes: int, penalties: Sequence[float]) -> list[LinearFit]:
    """The weights for each penalty C, in rising order: each fit begins at the one before."""
    x, y = torch.tensor(x_ND, dtype=torch.float64), torch.as_tensor(y_N)
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    return [_minimised(x, y, weight, bias, penalty) for penalty in penalties]


def _minimised(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, penalty: float) -> LinearFit:
    """Minimise in place."""
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=STEPS, tolerance_grad=TOLERANCE, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = F.cross_entropy(x @ weight.T + bias, y) + weight.square().sum() / (2 * penalty * len(x))
        total.backward()
        return total

    optimizer.step(loss)
    return LinearFit(weight.detach().numpy().copy(), bias.detach().numpy().copy())


@dataclass(frozen=True, eq=False)
class Scale:
    """Centre of features, and the one number that gives them a mean square length of 1."""

    centre: Doubles
    length: float

    @classmethod
    def of(cls, x_ND: Floats | Doubles) -> Scale:
        x = np.asarray(x_ND, np.float64)
        centre = x.mean(0)
        return cls(centre, max(1e-12, float(np.sqrt(((x - centre) ** 2).sum(1).mean()))))

    def __call__(self, x_ND: Floats | Doubles) -> Doubles:
        return (np.asarray(x_ND, np.float64) - self.centre) / self.length

    def undone(self, fit: LinearFit) -> LinearFit:
        """The same predictions from features that are not scaled."""
        weight = fit.weight / self.length
        return LinearFit(weight, fit.bias - weight @ self.centre)


def fit_scaled(x_ND: Floats | Doubles, y_N: Ints, *, classes: int, penalties: Sequence[float]) -> list[LinearFit]:
    """Fits on features of mean square length 1, so that a penalty weighs the same for all models."""
    scale = Scale.of(x_ND)
    return [scale.undone(fit) for fit in fit_logistic(scale(x_ND), y_N, classes=classes, penalties=penalties)]


# TF-IDF.

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


# Sentence vectors of a frozen model.

HIGHEST = 4
"""Layers that are concatenated."""


@dataclass(frozen=True, eq=False)
class FrozenVectors:
    base: Bundle
    """The encoder, with its sentence adapter merged."""
    head: ClassificationConfig
    """The linear head over the last layer."""
    layers: Floats
    """[N, layers · D] of the highest layers, the last one last."""
    width: int
    seconds: float
    """Time that reading all texts took."""
    windows: tuple[int, int]
    """Texts longer than a window, and their windows."""

    @property
    def last(self) -> Floats:
        """[N, D] of the last layer."""
        return self.layers[:, -self.width :]

    @classmethod
    def read(cls, bundle: Bundle, train: Dataset[TextExample], args: FineTuneArguments) -> FrozenVectors:
        base = sentence_bundle(with_delimiters(bundle))
        if bundle.adapter is not None:
            args.say("linear heads read the model's sentence adapter, merged into its weights")
        config = msgspec.structs.replace(args.config, trained=TrainableConfig.read("head"))
        options = ClassifyOptions(dense="none", mix=False)
        prepared = ClassifyTask().prepare(base, train, None, dataclasses.replace(args, config=config, options=options))
        head = msgspec.structs.replace(prepared.head, dropout=0.0, bias=UNSET)
        network = attach_head(base, _over(head, base), seed=0)[0].network.to(args.runtime.device)
        began = time.monotonic()
        features = Features.build(network, prepared.encoded, args.scoring)
        sequences = prepared.encoded.sequences
        rows = np.asarray(features.rows).reshape(len(features.rows), -1)
        vectors = merge_windows(rows, sequences.parts)
        seconds, long = time.monotonic() - began, sequences.parts > 1
        windows = (int(long.sum()), int(sequences.parts[long].sum()))
        return cls(base, head, vectors, base.network.encoder.width, seconds, windows)

    def model(self, fit: LinearFit, *, layers: bool, seed: int, device: str) -> Bundle:
        """The model whose scores are those of a fit on `layers` or on `last`."""
        head = _over(self.head, self.base) if layers else self.head
        bundle, _ = attach_head(self.base, head, seed=seed)
        classifier = head_as(bundle.network, Classification, "classify texts").classifier
        with torch.no_grad():
            classifier.weight.copy_(torch.from_numpy(fit.weight))
            classifier.bias.copy_(torch.from_numpy(fit.bias))
        bundle.network.to(device)
        return bundle


def _over(head: ClassificationConfig, base: Bundle) -> ClassificationConfig:
    """The head over the highest layers."""
    count = min(HIGHEST, base.network.encoder.depth)
    return msgspec.structs.replace(head, mix=f"concat{count}")
