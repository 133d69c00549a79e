"""Causal language modelling (Radford et al. 2018, eq. 1): predict each token from those before it.

    y_i = softmax(E z_i)        L = −1/|M| Σ_i log y_i[x_{i+1}]

E is the word embedding matrix (tied weights); the head has no layer, no bias and no weights of its own. The last token
of a sequence predicts nothing. The M × V logits are computed a chunk at a time. An encoder that reads both sides would
see the answer, and is refused. N tokens in the flat batch, M predictions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import NextTokens
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss, word_loss


class CausalLMConfig(Settings, path="causal-lm: ", error=RecipeError, tag_field="type", tag="causal-lm"):
    needs: ClassVar = NextTokens

    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """All but the last of each sequence, which are few."""
        return 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> CausalLM:
        self.check(model)
        return CausalLM(self)

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder that sees what is to be predicted."""
        if not isinstance(model, CausalTransformerConfig):
            raise RecipeError(
                "causal-lm predicts the next token, which this encoder sees; "
                'set model.type = "causal-transformer", or use masked-lm'
            )


class CausalLM(nn.Module):
    needs = NextTokens

    def __init__(self, config: CausalLMConfig) -> None:
        super().__init__()
        self.config = config

    def logits(self, z_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Scores of every next word, for vectors already chosen: [M, D] → [M, V]."""
        return F.linear(z_MD, words_VD)

    def forward(self, z_ND: Tensor, targets: NextTokens[Tensor], words_VD: Tensor, *, accuracy: bool = False) -> Loss:
        z_MD = z_ND.index_select(0, targets.places)
        return word_loss(z_MD, words_VD, None, targets.ids, weight=self.config.weight, accuracy=accuracy)

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        loss: Loss = self(z_ND, batch.targets[NextTokens], encoder.word_vectors, accuracy=accuracy)
        return loss
