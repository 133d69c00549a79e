"""Settings of an encoder–decoder, checked. The defaults are T5's (Raffel et al. 2020) at its base size.

EncoderDecoderSettings(layers=6, hidden=512, heads=8)
EncoderDecoderSettings(gated=True, activation="gelu-tanh", tied=False)          # T5 1.1 (Shazeer 2020; Roberts 2020)
"""

from __future__ import annotations

from larvatus.core.errors import RecipeError
from larvatus.core.ranges import (
    CountOrNone,
    DropoutRate,
    Epsilon,
    Layers,
    LayersOrNone,
    Size,
    SizeOrNone,
)
from larvatus.core.settings import Settings
from larvatus.models.nn.feedforward import Activation


class EncoderDecoderSettings(Settings, path="model.", error=RecipeError):
    layers: Layers = 12
    """Blocks of the encoder."""
    decoder_layers: LayersOrNone = 0
    """Blocks of the decoder; 0 means as many as the encoder has."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads of a layer."""
    head_size: SizeOrNone = 0
    """Size of a head; 0 means that the heads share the hidden size equally."""
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
    """Buckets of distances with a learnt bias on the scores of attention."""
    relative_distance: Size = 128
    """From this distance on, all tokens share the last bucket."""
    max_positions: Size = 512
    """Longest sequence on either side, in tokens."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings, attention weights, inside the feedforward layer, and on the output of each layer."""
    start: CountOrNone = 0
    """Id of the token with which the decoder begins: padding, as T5 has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head_size and self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; "
                f"set model.heads = {near}, or model.head_size"
            )
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
    def blocks(self) -> int:
        """Layers of the encoder with weights of their own: all."""
        return self.layers

    @property
    def decoder_blocks(self) -> int:
        return self.decoder_layers or self.layers

    @property
    def size_of_heads(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        if self.gated:
            return self.feedforward or -(-8 * self.hidden // (3 * 64)) * 64  # up to whole 64s, which kernels like
        return self.feedforward or 4 * self.hidden

    @property
    def word_width(self) -> int:
        return self.hidden

    @property
    def segments(self) -> int:
        """None: texts of a pair are told apart by what they say."""
        return 0

    @property
    def biases(self) -> bool:
        return False

    @property
    def init(self) -> float:
        """Deviation of heads that are put on it; its own weights have those of T5's code."""
        return 0.02

    @property
    def enclosed(self) -> bool:
        """A text is closed, but nothing opens it."""
        return False

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token leaves for the backward pass: queries, keys, values, out, inner of every layer."""
        return self.layers * (3 * self.heads * self.size_of_heads + self.hidden + self.inner)

    def least_weights(self, vocabulary: int) -> int:
        """Weights without norms, biases by distance and heads."""
        attention = 4 * self.hidden * self.heads * self.size_of_heads
        feedforward = (3 if self.gated else 2) * self.hidden * self.inner
        words = vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + feedforward) + self.decoder_blocks * (2 * attention + feedforward) + words
