"""The bidirectional transformer encoder (Devlin et al. 2019): embeddings, then a stack of blocks, over a flat batch.

    >>> from larvatus.batch import TokenBatch
    >>> config = TransformerConfig(layers=2, hidden=8, heads=2)
    >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]).map(torch.from_numpy)
    >>> Transformer(config, vocabulary=10)(batch).shape           # one vector a token
    torch.Size([7, 8])

N tokens in the flat batch, D hidden size.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, overload

import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.batch import TokenBatch
from larvatus.errors import RecipeError, UsageError
from larvatus.nn.attention import Attention
from larvatus.nn.block import Block, NormOrder
from larvatus.nn.embeddings import Embeddings
from larvatus.nn.feedforward import Activation, FeedForward
from larvatus.nn.layout import Grouped, Layout, Packed


class TransformerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    layers: int = 12
    """Blocks."""
    hidden: int = 768
    """Size of a token's vector."""
    heads: int = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: int = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden."""
    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm: NormOrder = "post"
    """Norm after each residual connection (post) or before each layer (pre)."""
    norm_epsilon: float = 1e-12
    """Added to the variance in norms."""
    positions: Literal["learned"] = "learned"
    """How a token knows its place."""
    max_positions: int = 512
    """Longest sequence, in tokens."""
    segments: int = 2
    """Kinds of segment embedded; 0 for none."""
    dropout: float = 0.1
    """Dropout on embeddings and on the output of each layer."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    init: float = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "max_positions"):
            if (value := getattr(self, name)) < 1:
                raise RecipeError(f"model.{name} = {value} must be at least 1")
        for name in ("feedforward", "segments", "init", "norm_epsilon"):
            if (value := getattr(self, name)) < 0:
                raise RecipeError(f"model.{name} = {value} must not be negative")
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= (value := getattr(self, name)) < 1.0:
                raise RecipeError(f"model.{name} = {value} must be at least 0 and below 1")
        if self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; set model.heads = {near}"
            )

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        return self.feedforward or 4 * self.hidden


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            vocabulary=vocabulary,
            hidden=config.hidden,
            max_positions=config.max_positions,
            segments=config.segments,
            norm_epsilon=config.norm_epsilon,
            dropout=config.dropout,
        )
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        # the residual stream of pre-norm blocks is never normed inside them
        self.final_norm = (
            nn.LayerNorm(config.hidden, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        )

    @overload
    def forward(
        self, batch: TokenBatch[Tensor], *, hidden_states: Literal[False] = False, limit: int | None = None
    ) -> Tensor: ...

    @overload
    def forward(
        self, batch: TokenBatch[Tensor], *, hidden_states: Literal[True], limit: int | None = None
    ) -> tuple[Tensor, ...]: ...

    def forward(
        self, batch: TokenBatch[Tensor], *, hidden_states: bool = False, limit: int | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """The last layer's vectors z_ND; with `hidden_states`, those of the embeddings and of every layer.

        `limit` promises that no sequence is longer, so that on CUDA nothing has to wait for the lengths.
        """
        layout = self.layout(batch.lengths, limit=limit)
        x_ND = self.embeddings(_arranged(batch, layout))
        states = [x_ND]
        for block in self.blocks:
            x_ND = block(x_ND, layout)
            if hidden_states:
                states.append(x_ND)
        x_ND = self.final_norm(x_ND)
        if hidden_states:
            return (*(layout.restore(state) for state in states[:-1]), layout.restore(x_ND))
        return layout.restore(x_ND)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> Layout:
        """How attention will see these sequences on this device, in the precision now in force."""
        device = lengths.device.type
        longest = limit if limit is not None else int(lengths.max()) if len(lengths) else 0
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.embeddings.words.weight.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        return Packed.of(lengths, limit=longest) if flash else Grouped.of(lengths)


def _block(config: TransformerConfig) -> Block:
    return Block(
        attention=Attention(hidden=config.hidden, heads=config.heads, dropout=config.attention_dropout),
        feedforward=FeedForward(hidden=config.hidden, inner=config.inner, activation=config.activation),
        hidden=config.hidden,
        norm=config.norm,
        norm_epsilon=config.norm_epsilon,
        dropout=config.dropout,
    )


def _arranged(batch: TokenBatch[Tensor], layout: Layout) -> TokenBatch[Tensor]:
    """What the embeddings read, in the layout's order."""
    return dataclasses.replace(
        batch,
        ids=layout.arrange(batch.ids),
        positions=layout.arrange(batch.positions),
        segments=layout.arrange(batch.segments),
    )
