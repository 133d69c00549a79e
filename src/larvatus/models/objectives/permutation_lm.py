"""Permutation language modelling (XLNet, Yang et al. 2019, eq. 3 to 5): each token from those before it in an order.

    p(x_{z_t} | x_{z_<t}) = softmax(E g_t + c)[x_{z_t}]        L = −1/M Σ over the last tokens of z of log p

g_t is the query stream's vector of position z_t, which does not know the token there (`models/nn/xlnet.py`). E is the
word embedding matrix (tied weights), c a bias for each word; there is no layer between. Only predicted positions have a
query: no N × V matrix exists, and the M × V logits are computed a chunk at a time. N tokens in the flat batch, M
predicted tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.data.corruption.permutation import PermutedTokens
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives.linear_cross_entropy import Loss, word_loss


@runtime_checkable
class HasTwoStreams(Protocol):
    """An encoder that can predict the token at a position without having seen it."""

    def two_streams(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """[M, D] of each position, from the tokens before it in the order."""

    def in_training(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """The same, with sequences read in segments if the model has a memory of them."""


class PermutationLMConfig(Settings, path="permutation-lm: ", error=RecipeError, tag_field="type", tag="permutation-lm"):
    needs: ClassVar = PermutedTokens

    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """The predicted share."""
        return 0.0 if corruption is None else corruption.rate

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder without a query stream."""
        if not isinstance(model, XLNetConfig):
            raise RecipeError(
                f'permutation-lm needs an encoder with two streams, but model.type is "{model.__struct_config__.tag}"; '
                'set model.type = "xlnet"'
            )

    def build(self, model: EncoderConfig, vocabulary: int) -> PermutationLM:
        self.check(model)
        return PermutationLM(self, vocabulary)


class PermutationLM(nn.Module):
    needs = PermutedTokens

    def __init__(self, config: PermutationLMConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def read(self, batch: TrainingBatch[Tensor], encoder: Encoder, *, limit: int | None) -> Tensor:
        """The query stream's vector of each predicted position: [M, D]."""
        targets: PermutedTokens[Tensor] = batch.targets[PermutedTokens]
        assert isinstance(encoder, HasTwoStreams)
        return encoder.in_training(batch.tokens, targets.order, targets.places, limit=limit)

    def logits(self, z_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Scores of every word for vectors of positions: [M, D] → [M, V]."""
        return F.linear(z_MD, words_VD, self.bias)

    def loss(self, z_MD: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        ids_M, weight = batch.targets[PermutedTokens].ids, self.config.weight
        return word_loss(z_MD, encoder.word_vectors, self.bias, ids_M, weight=weight, accuracy=accuracy)
