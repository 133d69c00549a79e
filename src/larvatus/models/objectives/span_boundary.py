"""Span-boundary objective (SpanBERT, Joshi et al. 2020, §3.2; chapter eq. 11.18 to 11.20).

A masked token x_i of the span s … e is predicted from the two tokens just outside the span and from its position in it:

    s_i = FFN([z_{s-1}; z_{e+1}; p_{i-s+1}])        L = -mean_i log softmax(U s_i + c)[x_i]

    FFN(x) = norm(GELU(W₂ norm(GELU(W₁ x + b₁)) + b₂))

U is the word embedding matrix, [V, E] (tied weights), c a bias for each word, p the embedding of a position. Recipes
add this loss to masked-lm (eq. 11.17): `larvatus recipes show spanbert`.

    loss = SpanBoundaryConfig().build(model, vocabulary)(z_ND, targets, words_VE)      # .total, .count

N tokens in the flat batch, M masked tokens, D hidden size, E width of the embeddings (D unless they are factorised), P
size of a position's embedding, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import SpanTargets
from larvatus.core.ranges import Size, Weight
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss, word_loss


class SpanBoundaryConfig(Settings, path="span-boundary: ", error=RecipeError, tag_field="type", tag="span-boundary"):
    needs: ClassVar = SpanTargets

    place_size: Size = 200
    """Size of the embedding of a token's position in the span."""
    places: Size = 64
    """Positions with an embedding, in tokens; those beyond share the last."""
    weight: Weight = 1.0
    """Weight of this objective in the sum of the losses."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """Predicted tokens per token of text: the masking rate."""
        return 0.0 if corruption is None else corruption.rate

    def build(self, model: EncoderConfig, vocabulary: int) -> SpanBoundary:
        return SpanBoundary(self, model, vocabulary)


class SpanBoundary(nn.Module):
    """The head: a feedforward net over both boundaries and the position, and scores by the word embeddings."""

    needs = SpanTargets

    def __init__(self, config: SpanBoundaryConfig, model: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.places = nn.Embedding(config.places, config.place_size)
        self.inner = nn.Linear(2 * model.hidden + config.place_size, model.hidden)
        self.inner_norm = nn.LayerNorm(model.hidden, eps=model.norm_epsilon)
        self.outer = nn.Linear(model.hidden, model.word_width)
        self.outer_norm = nn.LayerNorm(model.word_width, eps=model.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def represent(self, z_ND: Tensor, targets: SpanTargets[Tensor]) -> Tensor:
        """s_i of eq. 11.19 for each masked token: [N, D] → [M, E]."""
        edges_M2D = torch.cat([z_ND.index_select(0, targets.left), z_ND.index_select(0, targets.right)], dim=-1)
        p_MP = self.places(targets.place.clamp(max=self.config.places - 1)).to(edges_M2D.dtype)
        h_MD = self.inner_norm(F.gelu(self.inner(torch.cat([edges_M2D, p_MP], dim=-1))))
        s_ME: Tensor = self.outer_norm(F.gelu(self.outer(h_MD)))
        return s_ME

    def forward(self, z_ND: Tensor, targets: SpanTargets[Tensor], words_VE: Tensor, *, accuracy: bool = False) -> Loss:
        """The loss from states and embeddings; with `accuracy`, also how many tokens are predicted right."""
        s_ME = self.represent(z_ND, targets)
        return word_loss(s_ME, words_VE, self.bias, targets.ids, weight=self.config.weight, accuracy=accuracy)

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        loss: Loss = self(z_ND, batch.targets[SpanTargets], encoder.word_vectors, accuracy=accuracy)
        return loss
