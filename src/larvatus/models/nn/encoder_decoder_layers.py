"""Settings, blocks and decoder of an encoder–decoder (Raffel et al. 2020, §2.1).

    EncoderDecoderSettings(layers=6, hidden=512, heads=8)                      # the defaults are T5's base size
    EncoderDecoderSettings(gated=True, activation="gelu-tanh", tied=False)     # T5 1.1 (Shazeer 2020; Roberts 2020)

Each layer of a block is in a residual connection, with the norm before it:

    x ← x + dropout(attention(norm(x)))
    x ← x + dropout(cross(norm(x), memory))           in the decoder only: the encoder's output
    x ← x + dropout(feedforward(norm(x)))

No layer has a bias, and norms are RMSNorms. The decoder is a stack of blocks that reads the tokens so far and the
encoder's output:

    memory = EncoderOutput(states_MD, lengths_B)
    z_ND = decoder(embedded_ND, lengths_B, memory)             # states that predict the next token

A token attends to the tokens of its own sequence up to itself, and to the whole encoder output of that sequence. N
tokens of the decoder, M tokens of the encoder, B sequences, D hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.ranges import (
    CountOrNone,
    DropoutRate,
    Epsilon,
    Layers,
    LayersOrNone,
    Size,
    SizeOrNone,
)
from larvatus.models.nn.attention.cross_attention import CrossAttention, CrossGroups, DecoderLayout
from larvatus.models.nn.attention.layout import AttentionMask
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import ActivationCheckpointing, ModelConfig, check_heads, default_inner
from larvatus.models.nn.feedforward import Activation, FeedForward
from larvatus.models.nn.positions import RelativeBias


class RMSNorm(nn.Module):
    """RMSNorm (Zhang & Sennrich 2019): x / √(mean(x²) + ε) · g. It subtracts no mean and adds no bias.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([[2.0, -2.0]])).tolist()
    [[1.0, -1.0]]
    """

    def __init__(self, size: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """All ones."""
        self.weight.fill_(1.0)

    def forward(self, x_ND: Tensor) -> Tensor:
        """The mean of squares is computed in float32, or wider, whatever the precision in force."""
        wide = x_ND.to(torch.promote_types(x_ND.dtype, torch.float32))
        y_ND: Tensor = self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps))
        return y_ND


class EncoderDecoderSettings(ModelConfig):
    """No special token precedes a text; `init` is for new heads only, as its own weights have those of T5's code."""

    layers: Layers = 12
    """Blocks of the encoder."""
    decoder_layers: LayersOrNone = 0
    """Blocks of the decoder; 0 means as many as the encoder has."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads of a layer."""
    head_size: SizeOrNone = 0
    """Size of a head; 0 divides the hidden size equally between the heads."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden, and two thirds of that if gated (as many weights)."""
    activation: Activation = "relu"
    """Nonlinearity of the feedforward layer."""
    gated: bool = False
    """A gate on the feedforward layer (T5 1.1, with gelu-tanh)."""
    tied: bool = True
    """Words are scored by the vectors that embed them, times hidden^-0.5; false: by a table of their own (T5 1.1)."""
    norm_epsilon: Epsilon = 1e-6
    """Added to the mean square in norms."""
    relative_buckets: Size = 32
    """Buckets of distances with a learned bias on the attention scores."""
    relative_distance: Size = 128
    """From this distance on, all tokens share the last bucket."""
    max_positions: Size = 512
    """Longest sequence on either side, in tokens."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings, attention weights, inside the feedforward layer, and on the output of each layer."""
    start: CountOrNone = 0
    """Id of the decoder's start token: padding, as in T5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head_size:
            check_heads(self.hidden, self.heads, or_else=", or model.head_size")
        if self.relative_buckets % 2 or self.relative_buckets < 4:
            raise RecipeError(
                f"model.relative_buckets = {self.relative_buckets} must be even, half on either side, and at least 4; "
                "set model.relative_buckets = 32"
            )
        if self.relative_distance <= self.relative_buckets // 2:
            raise RecipeError(
                f"model.relative_distance = {self.relative_distance} leaves no distance to share a bucket; "
                f"set it above {self.relative_buckets // 2}, such as 128"
            )

    @property
    def decoder_blocks(self) -> int:
        return self.decoder_layers or self.layers

    @property
    def size_of_heads(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, resolved."""
        return self.feedforward or default_inner(self.hidden, gated=self.gated)

    @property
    def biases(self) -> bool:
        return False

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token keeps for the backward pass: queries, keys, values, out, inner of every layer."""
        return self.layers * (3 * self.heads * self.size_of_heads + self.hidden + self.inner)

    def least_weights(self, vocabulary: int) -> int:
        """Weights without norms, relative position biases and heads."""
        attention = 4 * self.hidden * self.heads * self.size_of_heads
        feedforward = (3 if self.gated else 2) * self.hidden * self.inner
        words = vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + feedforward) + self.decoder_blocks * (2 * attention + feedforward) + words


class EncoderDecoderBlock(nn.Module):
    def __init__(self, config: EncoderDecoderSettings, *, cross: bool) -> None:
        super().__init__()
        self.attention_norm = build_norm(config)
        self.attention = _attention(config)
        self.cross_norm = build_norm(config) if cross else None
        self.cross = _attention(config) if cross else None
        self.feedforward_norm = build_norm(config)
        self.feedforward = DroppedFeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_ND: Tensor,
        itself: CrossGroups,
        mask: AttentionMask,
        memory_MD: Tensor | None = None,
        across: CrossGroups | None = None,
    ) -> Tensor:
        h_ND = self.attention_norm(x_ND)
        x_ND = x_ND + self.dropout(self.attention(h_ND, h_ND, itself, mask))
        if self.cross is not None and self.cross_norm is not None:
            x_ND = x_ND + self.dropout(self.cross(self.cross_norm(x_ND), memory_MD, across))
        y_ND: Tensor = x_ND + self.dropout(self.feedforward(self.feedforward_norm(x_ND)))
        return y_ND


class DroppedFeedForward(FeedForward):
    """With dropout inside as well, and the initial deviations of T5's code."""

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


class ScaledEmbedding(nn.Embedding):
    """A word table with its own initial standard deviation."""

    def __init__(self, vocabulary: int, width: int, *, deviation: float) -> None:
        super().__init__(vocabulary, width)
        self.deviation = deviation

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        fill_normal(self.weight, self.deviation, generator)


class SharedRelativeBias(RelativeBias):
    """The relative position bias of one side, which all of its layers share."""

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


def build_norm(config: EncoderDecoderSettings) -> RMSNorm:
    return RMSNorm(config.hidden, eps=config.norm_epsilon)


def fill_normal(weight: Tensor, deviation: float, generator: torch.Generator) -> None:
    """Sampled on the CPU, so that a model starts the same on every device."""
    weight.copy_(torch.empty(weight.shape, dtype=torch.float32).normal_(std=deviation, generator=generator))


def _attention(config: EncoderDecoderSettings) -> CrossAttention:
    return CrossAttention(hidden=config.hidden, heads=config.heads, size=config.size_of_heads, dropout=config.dropout)


class EncoderOutput(NamedTuple):
    """The encoder's states of a batch."""

    states_MD: Tensor
    lengths_B: Tensor


class DecoderStack(ActivationCheckpointing):
    def __init__(self, config: EncoderDecoderSettings) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(EncoderDecoderBlock(config, cross=True) for _ in range(config.decoder_blocks))
        self.relative = SharedRelativeBias(config, bidirectional=False)
        self.final_norm = build_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, lengths_B: Tensor, memory: EncoderOutput) -> Tensor:
        pairs: DecoderLayout = DecoderLayout.of(lengths_B, memory.lengths_B)
        if pairs.longest > self.config.max_positions:
            raise UsageError(
                f"a text of {pairs.longest} tokens is longer than the {self.config.max_positions} positions of the "
                "decoder; give shorter texts"
            )
        read_MD = memory.states_MD.index_select(0, pairs.read)
        mask = AttentionMask(causal=True, bias=self.relative.table(pairs.longest))
        x_ND = self.dropout(x_ND.index_select(0, pairs.order))
        for block in self.blocks:
            x_ND = self.layer(block, x_ND, pairs.itself, mask, read_MD, pairs.across)
        return self.finished(x_ND).index_select(0, pairs.inverse)

    def finished(self, x_ND: Tensor) -> Tensor:
        """Final norm, scaled for the word vectors: tied ones have a norm of about √D, which is divided out."""
        z_ND: Tensor = self.dropout(self.final_norm(x_ND))
        return z_ND * self.config.hidden**-0.5 if self.config.tied else z_ND
