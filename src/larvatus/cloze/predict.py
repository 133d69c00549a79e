"""The one place that says what a model predicts hidden words with: an encoder and its masked-LM head.

    predictor = find_predictor(network)              # None where the model was never trained to
    predictor.logits(batch, places_M)                    # [M, V]: every token's score at some places of a flat batch
    predictor.log_probabilities(batch, at_B, asked)      # [Q]: of given tokens at one place of each sequence

M places in the flat batch, B sequences, Q questions (which sequence, which token), E width of the embeddings, V
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.batch import TokenBatch
from larvatus.errors import ArtefactError
from larvatus.network import Network
from larvatus.nn.encoder import Encoder
from larvatus.objectives import MaskedLM
from larvatus.text.tokenizer import Tokenizer

_LOGITS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Held at once: what stays in the caches of a CPU, what fills a GPU."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Which tokens are asked for: one place may be asked for several."""

    sequences: Tensor  # [Q] which sequence
    ids: Tensor  # [Q] which token


@dataclass(frozen=True, eq=False)
class Predictor:
    encoder: Encoder
    head: MaskedLM

    @property
    def words_VE(self) -> Tensor:
        return self.encoder.word_vectors

    @property
    def device(self) -> torch.device:
        return self.words_VE.device

    def room(self, tokenizer: Tokenizer) -> int:
        """Tokens of text that fit between the special tokens."""
        return tokenizer.frame.single.room(self.encoder.reach)

    def logits(self, batch: TokenBatch[Tensor], places_M: Tensor) -> Tensor:
        return self.head.logits(self.encoder(batch)[places_M], self.words_VE)

    def log_probabilities(self, batch: TokenBatch[Tensor], at_B: Tensor, asked: Questions) -> Tensor:
        """log p of each asked token: its own score less the log of the sum over the vocabulary. No B × V matrix
        exists, only a chunk of it at a time; and of the last layer only what these places need is computed."""
        return self.of_vectors(self.encoder.at(batch, at_B), asked)

    def of_vectors(self, z_BD: Tensor, asked: Questions) -> Tensor:
        """The same from the last layer's vectors of the places, which questions count."""
        h_BE = self.head.transform(z_BD)
        rows = max(1, _LOGITS.get(self.device.type, _LOGITS["cuda"]) // len(self.words_VE))
        norms_B = torch.cat(
            [log_sum_exp_(F.linear(h_CE, self.words_VE, self.head.bias).float()) for h_CE in h_BE.split(rows)]
        )
        scores_Q = (h_BE[asked.sequences] * self.words_VE[asked.ids]).sum(-1) + self.head.bias[asked.ids]
        return scores_Q.float() - norms_B[asked.sequences]


def log_sum_exp_(x_CV: Tensor) -> Tensor:
    """log Σ_v exp(x_cv), in the memory of x: `torch.logsumexp` would make a second matrix of that size."""
    largest_C1 = x_CV.amax(-1, keepdim=True)
    return (x_CV.sub_(largest_C1).exp_().sum(-1, keepdim=True).log_() + largest_C1)[:, 0]


def find_predictor(network: Network) -> Predictor | None:
    """What the model predicts hidden tokens with, its generator if it has one; None if it was never trained to."""
    filler = network.filler
    head = filler.objectives["masked-lm"] if filler is not None else None
    return Predictor(filler.encoder, head) if filler is not None and isinstance(head, MaskedLM) else None


def the_predictor(network: Network, *, what: str, name: str = "the model") -> Predictor:
    """The same, refused where there is none; `what` completes "no masked-lm head to …"."""
    predictor = find_predictor(network)
    if predictor is None:
        raise ArtefactError(f"{name} has no masked-lm head to {what} with; use a model pretrained with masked-lm")
    return predictor
