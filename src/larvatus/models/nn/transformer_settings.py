"""Settings of the transformer encoder, checked. The defaults are BERT's.

    TransformerSettings(layers=6, hidden=384, heads=12)

ModernBERT (Warner et al. 2024) is: pre-norm, rotary positions, a gated feedforward layer, no biases, and local
attention but in every third layer. `transformer.py` builds what they describe.
"""

from __future__ import annotations

from typing import Literal

from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, RotaryBase, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.models.nn.block import NormOrder
from larvatus.models.nn.feedforward import Activation


class TransformerSettings(Settings, path="model.", error=RecipeError):
    layers: Layers = 12
    """Blocks."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden, and two thirds of that if gated (as many weights)."""
    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm: NormOrder = "post"
    """Norm after each residual connection (post) or before each layer (pre)."""
    norm_epsilon: Epsilon = 1e-12
    """Added to the variance in norms."""
    positions: Literal["learned", "rotary"] = "learned"
    """How a token knows its place: an embedding is added (learned), or queries and keys are turned (rotary)."""
    max_positions: Size = 512
    """Longest sequence, in tokens."""
    segments: SizeOrNone = 2
    """Kinds of segment embedded; 0 for none."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings and on the output of each layer."""
    attention_dropout: DropoutRate = 0.1
    """Dropout on attention weights."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""
    rotary_base: RotaryBase = 10_000.0
    """Base of the rotary angles in global layers; larger for longer contexts."""
    rotary_base_local: RotaryBase = 10_000.0
    """The same in local layers."""
    gated: bool = False
    """A gate on the feedforward layer: with gelu, GeGLU."""
    biases: bool = True
    """Biases in linear layers and norms; each word of the masked-lm head keeps its own in any case."""
    local_attention: SizeOrNone = 0
    """Tokens in the window of local layers, half on either side; 0: every layer sees the whole sequence."""
    global_every: Layers = 1
    """With local attention, layers 0, n, 2n … are global."""
    first_norm: bool = True
    """With pre-norm: false leaves out the norm before the first attention, which follows that of the embeddings."""
    embedding: SizeOrNone = 0
    """Size of the input embeddings, where they are smaller and projected to `hidden` (factorised); 0 means `hidden`."""
    shared: bool = False
    """All layers have the same weights (ALBERT)."""
    relative_buckets: SizeOrNone = 0
    """Buckets of distances with a learnt bias on the scores of attention, besides positions (MPNet: 32); 0: none."""
    relative_distance: Size = 128
    """From this distance on, all tokens share the last bucket."""

    @property
    def enclosed(self) -> bool:
        """BERT reads [CLS] and [SEP] around every text."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; set model.heads = {near}"
            )
        _check_positions(self)
        _check_windows(self)
        _check_relative(self)
        if self.norm == "post" and not self.first_norm:
            raise RecipeError('model.first_norm = false needs pre-norm; set model.norm = "pre"')
        if self.shared and not self.first_norm:
            raise RecipeError("model.shared = true needs layers that are all alike; set model.first_norm = true")

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        if self.gated:
            return self.feedforward or -(-8 * self.hidden // (3 * 64)) * 64  # up to whole 64s, which kernels like
        return self.feedforward or 4 * self.hidden

    @property
    def word_width(self) -> int:
        """Size of the word vectors, in numbers; heads that are tied to them end in it."""
        return self.embedding or self.hidden

    @property
    def blocks(self) -> int:
        """Layers with weights of their own."""
        return 1 if self.shared else self.layers

    def least_weights(self, vocabulary: int) -> int:
        """Weights of an encoder, without biases, norms and heads."""
        block = 4 * self.hidden**2 + (3 if self.gated else 2) * self.hidden * self.inner
        rows = vocabulary + self.segments + (self.max_positions if self.positions == "learned" else 0)
        return block * self.blocks + rows * self.word_width

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token leaves for the backward pass: queries, keys, values, out, inner of every layer."""
        return self.layers * (4 * self.hidden + self.inner)

    def window(self, layer: int) -> int:
        """How many tokens a layer sees on either side; 0: all of them."""
        return self.local_attention // 2 if layer % self.global_every else 0


def _check_positions(config: TransformerSettings) -> None:
    if config.positions == "rotary" and (config.hidden // config.heads) % 2:
        raise RecipeError(
            f"rotary positions turn pairs, but model.hidden = {config.hidden} over model.heads = {config.heads} gives "
            f"heads of {config.hidden // config.heads} numbers; set model.hidden = {2 * config.hidden}"
        )


def _check_windows(config: TransformerSettings) -> None:
    if config.local_attention % 2:
        raise RecipeError(
            f"model.local_attention = {config.local_attention} must be even, half on either side; "
            f"set model.local_attention = {config.local_attention + 1}"
        )
    if config.local_attention and config.global_every == 1:
        raise RecipeError(
            f"model.local_attention = {config.local_attention} has no effect, as model.global_every = 1 makes every "
            "layer global; set model.global_every = 3"
        )
    if config.global_every > 1 and not config.local_attention:
        raise RecipeError(
            f"model.global_every = {config.global_every} has no effect without a window; "
            "set model.local_attention = 128"
        )


def _check_relative(config: TransformerSettings) -> None:
    buckets, distance = config.relative_buckets, config.relative_distance
    if buckets % 2 or buckets == 2:
        raise RecipeError(
            f"model.relative_buckets = {buckets} must be even, half on either side, and at least 4, or 0 for none; "
            "set model.relative_buckets = 32"
        )
    if buckets and distance <= buckets // 4:
        raise RecipeError(
            f"model.relative_distance = {distance} leaves no distance to share a bucket; "
            f"set it above {buckets // 4}, such as 128"
        )
    if not buckets and distance != 128:
        raise RecipeError(
            f"model.relative_distance = {distance} has no effect without buckets; set model.relative_buckets = 32"
        )
