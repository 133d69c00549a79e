"""The bidirectional transformer encoder (Devlin et al. 2019): embeddings, then a stack of blocks, over a flat batch.

    >>> import torch
    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = TransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]).map(torch.from_numpy)
    >>> encoder(batch).shape                                      # one vector a token
    torch.Size([7, 8])
    >>> len(encoder(batch, layers=[0, 2]))                        # of the embeddings and of the second layer
    2

The defaults of the settings are BERT's. ModernBERT (Warner et al. 2024) is: pre-norm, rotary positions, a gated
feedforward layer, no biases, and local attention except in every third layer. N tokens in the flat batch, D hidden
size.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, RotaryBase, Size, SizeOrNone
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.layout import AttentionMask
from larvatus.models.nn.block_stack import Block, BlockStack, NormOrder
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionSettings, Encoder, fewer_heads
from larvatus.models.nn.feedforward import Activation, FeedForward
from larvatus.models.nn.positions import RelativeBias, rotation


class TransformerSettings(AttentionSettings):
    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm: NormOrder = "post"
    """Norm after each residual connection (post) or before each layer (pre)."""
    norm_epsilon: Epsilon = 1e-12
    """Added to the variance in norms."""
    positions: Literal["learned", "rotary"] = "learned"
    """Positions: an added embedding (learned), or rotated queries and keys (rotary)."""
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
    """Tokens in the window of local layers, half on either side; 0: every layer attends to the whole sequence."""
    global_every: Layers = 1
    """With local attention, layers 0, n, 2n … are global."""
    first_norm: bool = True
    """With pre-norm: false omits the norm before the first attention, which follows that of the embeddings."""
    embedding: SizeOrNone = 0
    """Size of the input embeddings, if they are smaller and projected to `hidden` (factorised); 0 means `hidden`."""
    shared: bool = False
    """All layers share their weights (ALBERT)."""
    relative_buckets: SizeOrNone = 0
    """Buckets of distances with a learned bias on the attention scores, in addition to positions (MPNet: 32); 0: none.
    """
    relative_distance: Size = 128
    """From this distance on, all tokens share the last bucket."""

    @property
    def enclosed(self) -> bool:
        """BERT reads [CLS] and [SEP] around every text."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positions(self)
        _check_windows(self)
        _check_relative(self)
        if self.norm == "post" and not self.first_norm:
            raise RecipeError('model.first_norm = false needs pre-norm; set model.norm = "pre"')
        if self.shared and not self.first_norm:
            raise RecipeError("model.shared = true needs layers that are all equal; set model.first_norm = true")

    @property
    def word_width(self) -> int:
        """Size of the word vectors, resolved; tied heads end in it."""
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

    def window(self, layer: int) -> int:
        """Tokens that a layer attends to on either side; 0: all of them."""
        return self.local_attention // 2 if layer % self.global_every else 0


def _check_positions(config: TransformerSettings) -> None:
    if config.positions == "rotary" and (config.hidden // config.heads) % 2:
        raise RecipeError(
            f"rotary positions rotate pairs, but model.hidden = {config.hidden} over model.heads = {config.heads} "
            f"gives heads of {config.hidden // config.heads} numbers; set model.hidden = {2 * config.hidden}"
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


class TransformerConfig(TransformerSettings, tag_field="type", tag="transformer"):
    """Settings of a transformer in a recipe, and how it is built."""

    def build(self, vocabulary: int) -> Transformer:
        return Transformer(self, vocabulary)

    def narrowed(self, share: float) -> TransformerConfig:
        """The same transformer, narrower: hidden and feedforward sizes shrink; there are fewer heads of the same size.

        The embeddings keep their size, so that both can share them. That is ELECTRA's release, whose heads always have
        64 numbers; a generator narrower than a head has one.
        """
        hidden = max(1, round(self.hidden * share))
        return msgspec.structs.replace(
            self,
            hidden=hidden,
            heads=fewer_heads(hidden, size=self.hidden // self.heads),
            feedforward=max(1, round(self.feedforward * share)) if self.feedforward else 0,
            embedding=self.word_width,
        )


class Transformer(BlockStack):
    config: TransformerConfig
    embeddings: Embeddings

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            vocabulary=vocabulary,
            width=config.word_width,
            hidden=config.hidden,
            max_positions=config.max_positions if config.positions == "learned" else 0,
            segments=config.segments,
            norm_epsilon=config.norm_epsilon,
            dropout=config.dropout,
            biases=config.biases,
        )
        self.blocks = nn.ModuleList(_block(config, layer) for layer in range(config.blocks))
        # pre-norm blocks do not normalise the residual stream
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.relative = _relative(config)

    def share_embeddings(self, other: Encoder) -> None:
        """All but the projection of factorised embeddings."""
        if not isinstance(other, Transformer):
            raise RecipeError("a transformer shares its embeddings with another transformer only")
        self.embeddings.share(other.embeddings)

    def parts(self) -> list[tuple[int, nn.Module]]:
        embeddings, *above = super().parts()
        relative = [(len(self.blocks), self.relative)] if self.relative is not None else []  # used by every layer
        return [embeddings, *relative, *above]

    def flops(self, length: int) -> int:
        return super().flops(length) + 6 * sum(p.numel() for p in self.embeddings.project.parameters())

    def seen(self, length: int) -> int:
        windows = [self.config.window(layer) for layer in range(self.depth)]
        return sum(min(length, 2 * window + 1) if window else length for window in windows)

    @property
    def biased(self) -> bool:
        return self.relative is not None

    def attention_masks(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        """Global and local layers, each kind with its rotary angles."""
        config = self.config
        bases = {0: config.rotary_base}
        if config.local_attention:
            bases[config.local_attention // 2] = config.rotary_base_local
        bias = None if self.relative is None else self.relative.table(longest)
        turned = config.positions == "rotary"
        size, dtype = config.hidden // config.heads, self.word_vectors.dtype
        by_window = {
            window: AttentionMask(
                window=window,
                bias=bias,
                rotation=rotation(positions_N, size=size, base=base, dtype=dtype) if turned else None,
            )
            for window, base in bases.items()
        }
        return [by_window[config.window(layer)] for layer in range(config.layers)]


def _norm(config: TransformerConfig) -> nn.Module:
    return nn.LayerNorm(config.hidden, eps=config.norm_epsilon, bias=config.biases)


def _relative(config: TransformerConfig) -> RelativeBias | None:
    if not config.relative_buckets:
        return None
    return RelativeBias(buckets=config.relative_buckets, distance=config.relative_distance, heads=config.heads)


def _block(config: TransformerConfig, layer: int) -> Block:
    return Block(
        attention=Attention(
            hidden=config.hidden, heads=config.heads, dropout=config.attention_dropout, biases=config.biases
        ),
        attention_norm=_norm(config) if layer or config.first_norm else nn.Identity(),
        feedforward=FeedForward(
            hidden=config.hidden,
            inner=config.inner,
            activation=config.activation,
            gated=config.gated,
            biases=config.biases,
        ),
        feedforward_norm=_norm(config),
        norm=config.norm,
        dropout=config.dropout,
    )


class Embeddings(nn.Module):
    """Input embeddings (BERT, Devlin et al. 2019, §3 and figure 2): word + position + segment, then norm and dropout.

    x_i = dropout(norm(words[id_i] + positions[i] + segments[s_i]))

    Factorised (ALBERT, Lan et al. 2020, §3.1): all this in a smaller width E, then x_i ← P x_i + b, so a large
    vocabulary costs V × E + E × D weights instead of V × D.

    A model without learned positions has max_positions = 0 here, one without segments has segments = 0; with a single
    segment, every token has it, whatever the batch contains. `words` is also the output matrix of the masked-LM head
    (tied weights). E is the width of the embeddings.

    >>> import torch
    >>> from larvatus.core.batch import TokenBatch
    >>> batch = TokenBatch.of([[2, 5, 3], [2, 3]]).map(torch.from_numpy)
    >>> sizes = {"vocabulary": 8, "width": 2, "hidden": 4, "max_positions": 16, "segments": 2}
    >>> Embeddings(**sizes, norm_epsilon=1e-12, dropout=0.0)(batch).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        width: int,
        hidden: int,
        max_positions: int,
        segments: int,
        norm_epsilon: float,
        dropout: float,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(max_positions, width) if max_positions else None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=norm_epsilon, bias=biases)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(width, hidden, bias=biases) if width != hidden else nn.Identity()

    def share(self, other: Embeddings) -> None:
        """Share the tables and the norm of another; only the projection stays separate (ELECTRA's generator)."""
        self.words, self.positions, self.segments, self.norm = other.words, other.positions, other.segments, other.norm

    def forward(self, batch: TokenBatch[Tensor]) -> Tensor:
        x_NE = self.words(batch.ids)
        if self.positions is not None:
            x_NE = x_NE + self.positions(batch.positions)
        if self.segments is not None:
            alone = self.segments.num_embeddings == 1  # such models read pairs too, whose second text has no row
            x_NE = x_NE + (self.segments.weight[0] if alone else self.segments(batch.segments))
        y_ND: Tensor = self.project(self.dropout(self.norm(x_NE)))
        return y_ND
