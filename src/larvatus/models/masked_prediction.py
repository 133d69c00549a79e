"""Predict hidden words: the only place that knows whether a model uses a masked-LM head or XLNet's query stream.

    predictor = find_predictor(network, tokenizer)       # None if the model was never trained to
    predictor.logits(batch, places_M)                    # [M, V]: every token's score at some positions of a flat batch
    predictor.log_probabilities(batch, at_B, queries)    # [Q]: of given tokens at one position of each sequence

A masked language model reads the mask token at the position. XLNet has none: its query stream predicts the token there,
and no token of the text attends to the blanks.

M positions in the flat batch, B sequences, Q queries (which sequence, which token), E width of the embeddings, V
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.network import FILL_OBJECTIVES, Network
from larvatus.models.nn.encoder import Encoder
from larvatus.models.objectives import MaskedLM, PermutationLM
from larvatus.models.objectives.permutation_lm import HasTwoStreams

_LOGITS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Logits held at once: few enough for a CPU's caches, many enough to fill a GPU."""


@dataclass(frozen=True, eq=False)
class TokenQueries:
    """The tokens to score: one position may be queried for several."""

    sequences: Tensor  # [Q] which sequence
    ids: Tensor  # [Q] which token


@dataclass(frozen=True, eq=False)
class MaskedPredictor:
    encoder: Encoder
    head: MaskedLM | PermutationLM
    mask_id: int | None = None

    @property
    def words_VE(self) -> Tensor:
        return self.encoder.word_vectors

    @property
    def device(self) -> torch.device:
        return self.words_VE.device

    def longest_text(self, tokenizer: Tokenizer) -> int:
        """Tokens of text that fit between the special tokens."""
        return tokenizer.template.single.text_length(self.encoder.reach)

    def logits(self, batch: TokenBatch[Tensor], places_M: Tensor) -> Tensor:
        if isinstance(self.head, PermutationLM):
            return self.head.logits(self._query_states(batch, places_M), self.words_VE)
        return self.head.logits(self.encoder(batch)[places_M], self.words_VE)

    def _query_states(self, batch: TokenBatch[Tensor], places_M: Tensor) -> Tensor:
        """The query stream's vectors of positions, with all blanks predicted from the rest of the text: [M, D]."""
        assert isinstance(self.encoder, HasTwoStreams)
        order_N = torch.zeros_like(batch.ids) if self.mask_id is None else (batch.ids == self.mask_id).long()
        order_N[places_M] = 1
        ascending_M, turn_M = places_M.sort()
        z_MD = self.encoder.two_streams(batch, order_N, ascending_M)
        return torch.empty_like(z_MD).index_copy_(0, turn_M, z_MD)

    def log_probabilities(self, batch: TokenBatch[Tensor], at_B: Tensor, queries: TokenQueries) -> Tensor:
        """log p of each queried token: its score minus the log of the sum over the vocabulary. The B × V logits are
        computed a chunk at a time, and the last layer only for these positions.
        """
        if isinstance(self.head, PermutationLM):
            return self._log_probabilities(self._query_states(batch, at_B), queries)
        return self.of_vectors(self.encoder.at(batch, at_B), queries)

    def log_probabilities_at(self, batch: TokenBatch[Tensor], places_M: Tensor, ids_M: Tensor) -> Tensor:
        """The same for one token at each of any positions, several in a sequence too: [M]."""
        each = TokenQueries(torch.arange(len(places_M), device=places_M.device), ids_M)
        if isinstance(self.head, PermutationLM):
            return self._log_probabilities(self._query_states(batch, places_M), each)
        return self.of_vectors(self.encoder(batch).index_select(0, places_M), each)

    def of_vectors(self, z_BD: Tensor, queries: TokenQueries) -> Tensor:
        """The same from the last layer's vectors of the positions, with a masked-lm head."""
        assert isinstance(self.head, MaskedLM)
        return self._log_probabilities(self.head.transform(z_BD), queries)

    def _log_probabilities(self, h_BE: Tensor, queries: TokenQueries) -> Tensor:
        rows = max(1, _LOGITS.get(self.device.type, _LOGITS["cuda"]) // len(self.words_VE))
        norms_B = torch.cat(
            [log_sum_exp_(F.linear(h_CE, self.words_VE, self.head.bias).float()) for h_CE in h_BE.split(rows)]
        )
        scores_Q = (h_BE[queries.sequences] * self.words_VE[queries.ids]).sum(-1) + self.head.bias[queries.ids]
        return scores_Q.float() - norms_B[queries.sequences]


def log_sum_exp_(x_CV: Tensor) -> Tensor:
    """log Σ_v exp(x_cv), in the memory of x: `torch.logsumexp` would allocate a second matrix of that size."""
    largest_C1 = x_CV.amax(-1, keepdim=True)
    return (x_CV.sub_(largest_C1).exp_().sum(-1, keepdim=True).log_() + largest_C1)[:, 0]


def find_predictor(network: Network, tokenizer: Tokenizer | None = None) -> MaskedPredictor | None:
    """The predictor of hidden tokens, of its generator if it has one; None if the model was never trained to.

    XLNet needs the `tokenizer`, to know the blanks that are not queried.
    """
    filler = network.filler
    if filler is None:
        return None
    head = next(head for name, head in filler.objectives.items() if name in FILL_OBJECTIVES)
    assert isinstance(head, MaskedLM | PermutationLM)
    return MaskedPredictor(
        filler.encoder, head, tokenizer.id(tokenizer.special.mask) if tokenizer is not None else None
    )


def require_predictor(
    network: Network, tokenizer: Tokenizer | None = None, *, what: str, name: str = "the model"
) -> MaskedPredictor:
    """The same, refused if there is none; `what` completes "no masked-lm head to …"."""
    predictor = find_predictor(network, tokenizer)
    if predictor is None and "causal-lm" in network.heads:
        raise ArtefactError(
            f"{name} reads left to right and has no masked-lm head to {what} with; it generates text (larvatus "
            "generate) and scores texts (larvatus score)"
        )
    if predictor is None:
        raise ArtefactError(f"{name} has no masked-lm head to {what} with; use a model pretrained with masked-lm")
    return predictor
