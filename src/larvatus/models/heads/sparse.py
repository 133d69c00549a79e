"""Weights of the vocabulary as the vector of a text, from the masked-LM head (SPLADE, Formal et al. 2021).

    w_j = max_i log(1 + relu(logit_ij))        i over the tokens of the text, j over the vocabulary

A weight above 0 means that token j belongs to the text, whether it occurs in it or not; FLOPS (`objectives/
late_interaction.py`) keeps most of them at 0. The head has no parameters of its own: logits are those of the masked-lm
objective, which stays with the model, so that it still fills blanks. This is `SpladePooling` of `sentence-transformers`
(`SparseEncoder`; `models/bundle/token_modules.py` reads and writes it).

    SparseConfig(loss=Splade(inner=MultipleNegatives(scale=1.0)))

log(1 + relu(·)) never falls, so the maximum is taken of the logits first. The N × V matrix of all logits never exists:
it is computed in blocks of tokens, which the backward pass computes again. N tokens, T texts, D hidden size, E width of
word vectors, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, runs
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Temperature, Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.heads.embedding import TextHeadConfig, TokenHead, text_lengths
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.late_interaction import Splade, WeightVectors
from larvatus.models.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.models.objectives.sentence_losses import Texts

NUMBERS = 1 << 23
"""Logits that are in memory at once: 32 MiB."""


class SparseConfig(TextHeadConfig, path="sparse: ", tag="sparse"):
    vector_kind: ClassVar = "sparse"
    objectives: ClassVar = (MaskedLMConfig(),)

    loss: Splade = Splade()
    """Loss that training minimises."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> Sparse:
        return Sparse(self, model, vocabulary)

    def describe(self) -> str:
        return "a weight for each token of the vocabulary, most of them 0, compared by dot product"


class Sparse(TokenHead):
    config: SparseConfig

    def __init__(self, config: SparseConfig, model: EncoderConfig, vocabulary: int) -> None:
        super().__init__(config, model)
        self.size_of_vector = vocabulary
        self._encoder: tuple[Encoder, ...] = ()  # in tuples, so that their weights are not counted as the head's
        self._words: tuple[MaskedLM, ...] = ()

    def tie(self, encoder: Encoder) -> None:
        self._encoder = (encoder,)

    def join(self, objectives: nn.ModuleDict) -> None:
        words = dict(objectives.items()).get("masked-lm")
        if not isinstance(words, MaskedLM):
            raise RecipeError("sparse vectors are those of a masked-lm head, and this model has none; add masked-lm")
        self._words = (words,)

    def vectors(self, x: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """Weights of the vocabulary: tokens [N, D] → texts [T, V]."""
        lengths = text_lengths(targets)
        h_NE, words_VE = self._words[0].transform(x), self._encoder[0].word_vectors
        most = max(1, NUMBERS // len(words_VE))
        pieces_P, owners_P = _pieces(lengths.tolist(), most)
        starts = edges(pieces_P).tolist()
        rows = [
            self._largest(h_NE[starts[first] : starts[last]], words_VE, torch.from_numpy(pieces_P[first:last]))
            for first, last in runs(pieces_P, most)
        ]
        largest_PV = torch.cat(rows)
        if len(pieces_P) > len(lengths):  # texts of several pieces
            counts_T = torch.from_numpy(np.bincount(owners_P, minlength=len(lengths))).to(x.device)
            largest_PV = torch.segment_reduce(largest_PV, "max", lengths=counts_T, axis=0)
        return torch.log1p(torch.relu(largest_PV))

    def _largest(self, h_NE: Tensor, words_VE: Tensor, lengths_P: Tensor) -> Tensor:
        """The largest logits of each piece of a text: [N, E] → [P, V]."""
        given = (h_NE, words_VE, self._words[0].bias, lengths_P.to(h_NE.device))
        if not torch.is_grad_enabled():
            return _largest_logits(*given)
        largest: Tensor = checkpoint(_largest_logits, *given, use_reentrant=False)
        return largest

    def compared(self, vectors: Tensor, targets: SentenceTargets[Tensor]) -> WeightVectors:
        return WeightVectors(vectors)

    def mean_loss(self, texts: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        return self.config.loss(texts, targets, progress=self.progress)


def _largest_logits(h_NE: Tensor, words_VE: Tensor, bias_V: Tensor, lengths_P: Tensor) -> Tensor:
    logits_NV = F.linear(h_NE, words_VE, bias_V).float()
    return torch.segment_reduce(logits_NV, "max", lengths=lengths_P, axis=0)


def _pieces(lengths: list[int], most: int) -> tuple[Ints, Ints]:
    """Lengths of the pieces of texts, each of at most `most` tokens, and the text of each; a text without tokens is
    one empty piece.

    >>> [array.tolist() for array in _pieces([3, 5, 0], 4)]
    [[3, 4, 1, 0], [0, 1, 1, 2]]
    """
    pieces: list[int] = []
    owners: list[int] = []
    for text, length in enumerate(lengths):
        sizes = [most] * (length // most) + ([length % most] if length % most or not length else [])
        pieces += sizes
        owners += [text] * len(sizes)
    return np.array(pieces, np.int64), np.array(owners, np.int64)
