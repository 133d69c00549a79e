"""One block of an encoder–decoder (Raffel et al. 2020, §2.1): each layer in a residual connection, normed before it.

    x ← x + dropout(attention(norm(x)))
    x ← x + dropout(cross(norm(x), memory))           in the decoder alone: what the encoder has read
    x ← x + dropout(feedforward(norm(x)))

No layer has a bias, and norms are RMSNorms. N tokens, M tokens of the encoder, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from larvatus.models.nn.attention.crossing import Blocks, CrossAttention
from larvatus.models.nn.attention.sight import Sight
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_decoder_settings import EncoderDecoderSettings
from larvatus.models.nn.feedforward import FeedForward
from larvatus.models.nn.relative import RelativeBias
from larvatus.models.nn.rms_norm import RMSNorm


class EncoderDecoderBlock(nn.Module):
    def __init__(self, config: EncoderDecoderSettings, *, cross: bool) -> None:
        super().__init__()
        self.attention_norm = norm_of(config)
        self.attention = _attention(config)
        self.cross_norm = norm_of(config) if cross else None
        self.cross = _attention(config) if cross else None
        self.feedforward_norm = norm_of(config)
        self.feedforward = DroppedFeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_ND: Tensor,
        itself: Blocks,
        sight: Sight,
        memory_MD: Tensor | None = None,
        across: Blocks | None = None,
    ) -> Tensor:
        h_ND = self.attention_norm(x_ND)
        x_ND = x_ND + self.dropout(self.attention(h_ND, h_ND, itself, sight))
        if self.cross is not None and self.cross_norm is not None:
            x_ND = x_ND + self.dropout(self.cross(self.cross_norm(x_ND), memory_MD, across))
        y_ND: Tensor = x_ND + self.dropout(self.feedforward(self.feedforward_norm(x_ND)))
        return y_ND


class DroppedFeedForward(FeedForward):
    """With dropout inside as well, and the deviations of T5's code."""

    def __init__(self, config: EncoderDecoderSettings) -> None:
        super().__init__(
            hidden=config.hidden, inner=config.inner, activation=config.activation, gated=config.gated, biases=False
        )
        self.dropout = Dropout(config.dropout)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        for linear in (self.up, self.down):
            fill_normal(linear.weight, linear.in_features**-0.5, generator)

    def forward(self, x_ND: Tensor) -> Tensor:
        y_ND: Tensor = self.down(self.dropout(self.inner(x_ND)))
        return y_ND


class WordVectors(nn.Embedding):
    """A table of words whose numbers are drawn with a deviation of its own."""

    def __init__(self, vocabulary: int, width: int, *, deviation: float) -> None:
        super().__init__(vocabulary, width)
        self.deviation = deviation

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        fill_normal(self.weight, self.deviation, generator)


class Distances(RelativeBias):
    """The bias by distance of one side, which all of its layers share."""

    def __init__(self, config: EncoderDecoderSettings, *, bidirectional: bool) -> None:
        super().__init__(
            buckets=config.relative_buckets,
            distance=config.relative_distance,
            heads=config.heads,
            bidirectional=bidirectional,
        )
        self.deviation = config.hidden**-0.5

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        fill_normal(self.weight, self.deviation, generator)


def norm_of(config: EncoderDecoderSettings) -> RMSNorm:
    return RMSNorm(config.hidden, eps=config.norm_epsilon)


def fill_normal(weight: Tensor, deviation: float, generator: torch.Generator) -> None:
    """Drawn on the CPU, so that a model starts the same on every device."""
    weight.copy_(torch.empty(weight.shape, dtype=torch.float32).normal_(std=deviation, generator=generator))


def _attention(config: EncoderDecoderSettings) -> CrossAttention:
    return CrossAttention(hidden=config.hidden, heads=config.heads, size=config.size_of_heads, dropout=config.dropout)
