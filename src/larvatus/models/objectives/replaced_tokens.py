"""Replaced-token detection (ELECTRA, Clark et al. 2020, §2): is each token the original, or a replacement?

    x̂_i ~ softmax of a small generator, for i ∈ M; elsewhere x̂_i = x_i
    D(x̂, i) = σ(wᵀ f(W z_i + b) + c)            L = −1/N Σ_i [x̂_i ≠ x_i] log D(x̂, i) + [x̂_i = x_i] log(1 − D(x̂, i))

All tokens are predicted, including special tokens; a sample that equals the original counts as original. The loss of a
recipe is masked-lm (the generator's) + 50 × this. No gradient passes through the samples. The generator is the same
encoder, narrower, over the same embeddings; it is trained only by masked-lm, and dropped after training. N tokens in
the flat batch, M hidden tokens, D hidden size.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.ranges import Share, Weight
from larvatus.core.settings import Settings
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.feedforward import ACTIVATIONS
from larvatus.models.objectives.linear_cross_entropy import Loss


class ReplacedTokensConfig(
    Settings, path="replaced-tokens: ", error=RecipeError, tag_field="type", tag="replaced-tokens"
):
    needs: ClassVar = ReplacedTokens

    generator: Share = 0.25
    """Width of the generator as a share of the model's; it has as many layers. 0: no generator, as in a saved model."""
    weight: Weight = 50.0
    """Share of this objective in the loss."""

    def build(self, model: EncoderConfig, vocabulary: int) -> ReplacedTokensHead:
        return ReplacedTokensHead(self, model)


class ReplacedTokensHead(nn.Module):
    needs = ReplacedTokens

    def __init__(self, config: ReplacedTokensConfig, model: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(model.hidden, model.hidden, bias=model.biases)
        self.activation = ACTIVATIONS[model.activation]
        self.score = nn.Linear(model.hidden, 1, bias=model.biases)

    def logits(self, z_ND: Tensor) -> Tensor:
        """Above 0 if a token looks replaced: [N, D] → [N]."""
        scores_N1: Tensor = self.score(self.activation(self.dense(z_ND)))
        return scores_N1.squeeze(-1)

    def forward(self, z_ND: Tensor, targets: ReplacedTokens[Tensor], *, accuracy: bool = False) -> Loss:
        logits_N, labels_N = self.logits(z_ND), targets.labels
        real_N = labels_N != IGNORE
        wide = torch.promote_types(logits_N.dtype, torch.float32)
        losses_N = F.binary_cross_entropy_with_logits(
            logits_N.to(wide), labels_N.clamp(min=0).to(wide), reduction="none"
        )
        return Loss(
            total=(losses_N * real_N).sum(),
            count=real_N.sum(),
            correct=((logits_N > 0) == labels_N).sum() if accuracy else None,
            positive=(labels_N == 1).sum() if accuracy else None,
            weight=self.config.weight,
        )

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        loss: Loss = self(z_ND, batch.targets[ReplacedTokens], accuracy=accuracy)
        return loss


def replace_tokens(batch: TrainingBatch[Tensor], samples_M: Tensor) -> TrainingBatch[Tensor]:
    """The text with a sample for each hidden token, and labels of the tokens that changed."""
    masked, targets = batch.targets[MaskedTokens], batch.targets[ReplacedTokens]
    size = batch.tokens.size
    places_M = masked.places.where(masked.ids != IGNORE, size)  # those of fillers are written past the end

    def put(array_N: Tensor, values_M: Tensor) -> Tensor:
        return torch.cat([array_N, array_N[:1]]).scatter(0, places_M, values_M)[:size]

    labels_N = put(targets.labels, (samples_M != masked.ids).to(targets.labels.dtype))
    return TrainingBatch(
        tokens=dataclasses.replace(batch.tokens, ids=put(batch.tokens.ids, samples_M)),
        targets={**batch.targets, ReplacedTokens: dataclasses.replace(targets, labels=labels_N)},
    )
