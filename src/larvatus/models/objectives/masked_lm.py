"""Masked language modelling (Devlin et al. 2019; chapter §11.2.1): predict the tokens that corruption hid.

    h_i = norm(GELU(W z_i + b))        y_i = softmax(E h_i + c)        L = −1/|M| Σ_{i ∈ M} log y_i[x_i]

E is the word embedding matrix (tied weights), c a bias for each word. Only hidden tokens reach the head: no N × V
matrix exists, and the M × V logits are computed a chunk at a time. N tokens in the flat batch, M hidden tokens, D
hidden size, E width of the embeddings (D unless they are factorised), V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.feedforward import ACTIVATIONS
from larvatus.models.objectives.linear_cross_entropy import Loss, linear_cross_entropy_and_samples, word_loss


class MaskedLMConfig(Settings, path="masked-lm: ", error=RecipeError, tag_field="type", tag="masked-lm"):
    needs: ClassVar = MaskedTokens

    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """The masked share."""
        return 0.0 if corruption is None else corruption.rate

    def build(self, model: EncoderConfig, vocabulary: int) -> MaskedLM:
        return MaskedLM(self, model, vocabulary)


class MaskedLM(nn.Module):
    needs = MaskedTokens

    def __init__(self, config: MaskedLMConfig, model: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(model.hidden, model.word_width, bias=model.biases)
        self.activation = ACTIVATIONS[model.activation]
        self.norm = nn.LayerNorm(model.word_width, eps=model.norm_epsilon, bias=model.biases)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def transform(self, z_MD: Tensor) -> Tensor:
        h_ME: Tensor = self.norm(self.activation(self.dense(z_MD)))
        return h_ME

    def logits(self, z_MD: Tensor, words_VE: Tensor) -> Tensor:
        """Scores of every word for vectors already chosen: [M, D] → [M, V]."""
        return F.linear(self.transform(z_MD), words_VE, self.bias)

    def forward(self, z_ND: Tensor, targets: MaskedTokens[Tensor], words_VE: Tensor, *, accuracy: bool = False) -> Loss:
        h_ME = self.transform(z_ND.index_select(0, targets.places))
        return word_loss(h_ME, words_VE, self.bias, targets.ids, weight=self.config.weight, accuracy=accuracy)

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        loss: Loss = self(z_ND, batch.targets[MaskedTokens], encoder.word_vectors, accuracy=accuracy)
        return loss

    def loss_and_samples(
        self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False
    ) -> tuple[Loss, Tensor]:
        """The loss, and the model's sample for each hidden token [M] by the batch's random bits (ELECTRA)."""
        targets = batch.targets[MaskedTokens]
        bits_M = batch.targets[ReplacedTokens].draws.index_select(0, targets.places)
        h_ME = self.transform(z_ND.index_select(0, targets.places))
        total, correct, samples_M = linear_cross_entropy_and_samples(
            h_ME, encoder.word_vectors, self.bias, targets.ids, bits_M, accuracy=accuracy
        )
        count = (targets.ids != IGNORE).sum()
        loss = Loss(total=total, count=count, correct=correct if accuracy else None, weight=self.config.weight)
        return loss, samples_M
