"""All texts of a data set with their vectors, ready to be compared, whatever kind of vectors the model gives.

    texts = compared_texts(network, data, scoring)
    texts.scores(queries, documents)         # [Q, C] similarities of texts, by number: cosine, MaxSim or dot product
    texts.tensors(numbers)                   # some texts as a loss reads them
    texts.text(3)                            # what the model gives for one text

U texts, N tokens, K size of a vector, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges
from larvatus.models.heads.embedding import TextHead, text_lengths
from larvatus.models.network import Network
from larvatus.models.objectives.late_interaction import TokenVectors, WeightVectors
from larvatus.models.objectives.sentence_losses import Texts
from larvatus.tasks.embed.encode import (
    EncodedSentences,
    EncodeOptions,
    embedded_batches,
    embedder_of,
    text_vectors,
)
from larvatus.tasks.encoding.sequences import WindowOptions, run_indices
from larvatus.tasks.scoring import ScoringOptions

AT_ONCE = 512
"""Sparse texts that are dense in memory at once."""


class ComparedTexts(ABC):
    """U texts, by number."""

    @abstractmethod
    def scores(self, first: Ints, second: Ints) -> Floats:
        """[Q, C] similarities of each text of the first, as the query, with each of the second."""

    @abstractmethod
    def paired(self, first: Ints, second: Ints) -> Floats:
        """[P] similarities of texts at the same place."""

    @abstractmethod
    def tensors(self, texts: Ints) -> Texts:
        """Some texts as a loss compares them."""


@dataclass(frozen=True, eq=False)
class DenseTexts(ComparedTexts):
    """A vector for each text, compared by cosine."""

    vectors_UK: Floats

    def scores(self, first: Ints, second: Ints) -> Floats:
        scores_QC: Floats = self._unit(first) @ self._unit(second).T
        return scores_QC

    def paired(self, first: Ints, second: Ints) -> Floats:
        cosines: Floats = (self._unit(first) * self._unit(second)).sum(1)
        return cosines

    def _unit(self, texts: Ints) -> Floats:
        x = self.vectors_UK[texts]
        unit: Floats = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return unit

    def tensors(self, texts: Ints) -> Texts:
        return torch.from_numpy(self.vectors_UK[texts])


@dataclass(frozen=True, eq=False)
class TokenTexts(ComparedTexts):
    """A vector for each token of each text, end to end, compared by MaxSim."""

    vectors_NK: Floats
    lengths_U: Ints

    def text(self, number: int) -> Floats:
        """[n, K] the vectors of one text."""
        start = int(self.lengths_U[:number].sum())
        return self.vectors_NK[start : start + int(self.lengths_U[number])]

    def scores(self, first: Ints, second: Ints) -> Floats:
        scores_QC: Floats = self.tensors(first).scores(self.tensors(second)).numpy()
        return scores_QC

    def paired(self, first: Ints, second: Ints) -> Floats:
        scores_P: Floats = self.tensors(first).paired_scores(self.tensors(second)).numpy()
        return scores_P

    def tensors(self, texts: Ints) -> TokenVectors:
        lengths = self.lengths_U[texts]
        rows = run_indices(edges(self.lengths_U)[:-1][texts], lengths)
        return TokenVectors(torch.from_numpy(self.vectors_NK[rows]), torch.from_numpy(lengths))


@dataclass(frozen=True, eq=False)
class SparseTexts(ComparedTexts):
    """Weights above 0 of the vocabulary for each text, end to end, compared by dot product."""

    tokens_N: Ints
    weights_N: Floats
    lengths_U: Ints
    vocabulary: int

    def text(self, number: int) -> tuple[Ints, Floats]:
        """Tokens of one text by number, and their weights."""
        start = int(self.lengths_U[:number].sum())
        here = slice(start, start + int(self.lengths_U[number]))
        return self.tokens_N[here], self.weights_N[here]

    def scores(self, first: Ints, second: Ints) -> Floats:
        queries_QV = self._dense(first)
        blocks = [second[low : low + AT_ONCE] for low in range(0, len(second), AT_ONCE)]
        parts = [queries_QV @ self._dense(block).T for block in blocks]
        return np.concatenate(parts, 1) if parts else np.zeros((len(first), 0), np.float32)

    def paired(self, first: Ints, second: Ints) -> Floats:
        blocks = [slice(low, low + AT_ONCE) for low in range(0, len(first), AT_ONCE)]
        parts = [(self._dense(first[block]) * self._dense(second[block])).sum(1) for block in blocks]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _dense(self, texts: Ints) -> Floats:
        """[T, V]."""
        lengths = self.lengths_U[texts]
        places = run_indices(edges(self.lengths_U)[:-1][texts], lengths)
        dense_TV = np.zeros((len(texts), self.vocabulary), np.float32)
        dense_TV[np.repeat(np.arange(len(texts)), lengths), self.tokens_N[places]] = self.weights_N[places]
        return dense_TV

    def tensors(self, texts: Ints) -> WeightVectors:
        return WeightVectors(torch.from_numpy(self._dense(texts)))


def reading_of(head: TextHead, windows: WindowOptions) -> EncodeOptions:
    """How texts are read for a head; those with token vectors or sparse vectors read all tokens."""
    return EncodeOptions(pool=getattr(head.config, "pool", "mean"), windows=windows)


def compared_texts(model: Network, data: EncodedSentences, scoring: ScoringOptions) -> ComparedTexts:
    """All texts of a data set with the vectors that the model gives, in evaluation mode."""
    kind = embedder_of(model).config.vector_kind
    if kind == "late":
        return token_texts(model, data, scoring)
    if kind == "sparse":
        return sparse_texts(model, data, scoring)
    return DenseTexts(text_vectors(model, data, scoring))


def token_texts(model: Network, data: EncodedSentences, scoring: ScoringOptions) -> TokenTexts:
    """The token vectors of each text."""
    vectors: list[Floats] = [np.zeros((0, 0), np.float32)] * len(data.sequences)
    for chosen, rows, targets in embedded_batches(model, data, scoring):
        parts = rows.float().cpu().split(text_lengths(targets).tolist())
        for number, part in zip(chosen.tolist(), parts, strict=True):
            vectors[number] = part.numpy()
    return TokenTexts(np.concatenate(vectors), np.array([len(each) for each in vectors], np.int64))


def sparse_texts(model: Network, data: EncodedSentences, scoring: ScoringOptions) -> SparseTexts:
    """The weights above 0 of each text."""
    listed: list[tuple[Ints, Floats]] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(data.sequences)
    for chosen, weights_TV, _ in embedded_batches(model, data, scoring):
        for number, weights_V in zip(chosen.tolist(), weights_TV.float().cpu().numpy(), strict=True):
            tokens = np.flatnonzero(weights_V)
            listed[number] = tokens, weights_V[tokens]
    lengths = np.array([len(tokens) for tokens, _ in listed], np.int64)
    tokens_N, weights_N = (np.concatenate(part) for part in zip(*listed, strict=True))
    return SparseTexts(tokens_N, weights_N, lengths, embedder_of(model).size_of_vector)
