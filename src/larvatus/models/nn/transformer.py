"""The bidirectional transformer encoder (Devlin et al. 2019): embeddings, then a stack of blocks, over a flat batch.

    >>> import torch
    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = TransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]).map(torch.from_numpy)
    >>> encoder(batch).shape                                      # one vector a token
    torch.Size([7, 8])
    >>> len(encoder(batch, layers=[0, 2]))                        # of the embeddings and of the second layer
    2

N tokens in the flat batch, D hidden size.
"""

from __future__ import annotations

import msgspec
from torch import Tensor, nn

from larvatus.core.errors import RecipeError
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.sight import Sight
from larvatus.models.nn.block import Block
from larvatus.models.nn.embeddings import Embeddings
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.feedforward import FeedForward
from larvatus.models.nn.relative import RelativeBias
from larvatus.models.nn.rotary import rotation
from larvatus.models.nn.stack import BlockStack
from larvatus.models.nn.transformer_settings import TransformerSettings


class TransformerConfig(TransformerSettings, tag_field="type", tag="transformer"):
    """What a recipe says of a transformer (`transformer_settings.py`), and what it builds."""

    def build(self, vocabulary: int) -> Transformer:
        return Transformer(self, vocabulary)

    def narrowed(self, share: float) -> TransformerConfig:
        """The same transformer, narrower: hidden and feedforward sizes shrink, heads become fewer and stay as large.

        The embeddings keep their size, so that both can share them. That is ELECTRA's release, whose heads always have
        64 numbers; a generator narrower than a head has one.
        """
        hidden = max(1, round(self.hidden * share))
        most = max(1, hidden // (self.hidden // self.heads))
        return msgspec.structs.replace(
            self,
            hidden=hidden,
            heads=next(heads for heads in range(most, 0, -1) if hidden % heads == 0),
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
        # the residual stream of pre-norm blocks is never normed inside them
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.relative = _relative(config)

    def share_embeddings(self, other: Encoder) -> None:
        """All but the projection, where embeddings are factorised."""
        if not isinstance(other, Transformer):
            raise RecipeError("a transformer shares its embeddings with another transformer only")
        self.embeddings.share(other.embeddings)

    def parts(self) -> list[tuple[int, nn.Module]]:
        embeddings, *above = super().parts()
        relative = [(len(self.blocks), self.relative)] if self.relative is not None else []  # read by every layer
        return [embeddings, *relative, *above]

    def flops(self, length: int) -> int:
        return super().flops(length) + 6 * sum(p.numel() for p in self.embeddings.project.parameters())

    def seen(self, length: int) -> int:
        windows = [self.config.window(layer) for layer in range(self.depth)]
        return sum(min(length, 2 * window + 1) if window else length for window in windows)

    @property
    def biased(self) -> bool:
        return self.relative is not None

    def sights(self, positions_N: Tensor, *, longest: int) -> list[Sight]:
        """Global and local layers, each kind with its angles."""
        config = self.config
        bases = {0: config.rotary_base}
        if config.local_attention:
            bases[config.local_attention // 2] = config.rotary_base_local
        bias = None if self.relative is None else self.relative.table(longest)
        turned = config.positions == "rotary"
        size, dtype = config.hidden // config.heads, self.word_vectors.dtype
        by_window = {
            window: Sight(
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
