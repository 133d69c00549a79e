"""Denoising (T5, Raffel et al. 2020, §3.1.4): the encoder reads text with holes, the decoder generates what is missing.

    y_i = softmax(E z_i)        L = −1/M Σ_i log y_i[x_i]        z_i from what was read, and x_1 … x_{i−1}

The decoder gets the correct tokens before each that it predicts (teacher forcing), its start token first. E are the
output word vectors of the encoder–decoder; there is no other head and no bias. Fine-tuning from text to text is the
same objective with other texts. M target tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import ClassVar, cast

import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig, SentinelsConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, EncoderOutput, shift_right
from larvatus.models.objectives.linear_cross_entropy import Loss, word_loss


class DenoisingConfig(Settings, path="denoising: ", error=RecipeError, tag_field="type", tag="denoising"):
    needs: ClassVar = DenoisedText

    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """Sentinels and the tokens they replace, relative to what is left to read."""
        if not isinstance(corruption, SentinelsConfig):
            return 0.0
        spans = corruption.rate / corruption.mean
        return (corruption.rate + spans) / (1 - corruption.rate + spans)

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder without a decoder."""
        if not isinstance(model, EncoderDecoderConfig):
            raise RecipeError('denoising generates text, which an encoder cannot; set model.type = "encoder-decoder"')

    def build(self, model: EncoderConfig, vocabulary: int) -> Denoising:
        self.check(model)
        return Denoising(self)


class Denoising(nn.Module):
    needs = DenoisedText

    def __init__(self, config: DenoisingConfig) -> None:
        super().__init__()
        self.config = config

    def read(self, batch: TrainingBatch[Tensor], encoder: Encoder, *, limit: int | None) -> Tensor:
        """The decoder's states, from which each token is predicted: [M, D]."""
        assert isinstance(encoder, EncoderDecoder), "build refuses others"
        targets: DenoisedText[Tensor] = batch.targets[DenoisedText]
        memory = EncoderOutput(cast(Tensor, encoder(batch.tokens, limit=limit)), batch.tokens.lengths)
        inputs_M = shift_right(targets.ids, targets.lengths, encoder.config.start)
        return encoder.decode(inputs_M, targets.lengths, memory)

    def logits(self, z_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Scores of every word, for states of the decoder: [M, D] → [M, V]."""
        return F.linear(z_MD, words_VD)

    def loss(self, z_MD: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        ids_M, weight = batch.targets[DenoisedText].ids, self.config.weight
        return word_loss(z_MD, encoder.word_vectors, None, ids_M, weight=weight, accuracy=accuracy)
