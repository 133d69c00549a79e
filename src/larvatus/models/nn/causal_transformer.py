"""The left-to-right transformer: the same blocks, in which a token attends only to those before it.

    GPT     (Radford et al. 2018)      post-norm: the norm after each residual connection, as in BERT
    GPT-2   (Radford et al. 2019)      pre-norm, with one more norm above the last block; smaller initial weights where
                                       layers join the residual stream

    x_i = dropout(words[id_i] + positions[i])        no segments, and no norm of the embeddings

The attention mask is data (`AttentionMask(causal=True)`), so the block is the same.

    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = CausalTransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10).eval()
    >>> batch = TokenBatch.of([[7, 8, 9], [7, 8, 1]]).map(torch.from_numpy)
    >>> first, second = encoder(batch).split(3)
    >>> bool(torch.equal(first[:2], second[:2]))                 # later tokens change nothing
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Size
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.attention_mask import AttentionMask
from larvatus.models.nn.block_stack import Block, BlockStack, NormOrder
from larvatus.models.nn.causal_generation import CausalGenerationState, continuation_states
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionSettings
from larvatus.models.nn.feedforward import Activation, FeedForward


class CausalTransformerConfig(AttentionSettings, tag_field="type", tag="causal-transformer"):
    """Settings of a recipe; the defaults are GPT's. Published vocabularies add nothing around a text."""

    activation: Activation = "gelu-tanh"
    """Nonlinearity of the feedforward layer."""
    norm: NormOrder = "post"
    """Norm after each residual connection (post, GPT) or before each layer (pre, GPT-2)."""
    norm_epsilon: Epsilon = 1e-5
    """Added to the variance in norms."""
    max_positions: Size = 512
    """Longest sequence, in tokens."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings and on the output of each layer."""
    attention_dropout: DropoutRate = 0.1
    """Dropout on attention weights."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""
    residual_init: bool = False
    """Divide those of layers that end in the residual stream by √(2 × layers), the number of such layers (GPT-2)."""

    def least_weights(self, vocabulary: int) -> int:
        block = 4 * self.hidden**2 + 2 * self.hidden * self.inner
        return block * self.layers + (vocabulary + self.max_positions) * self.hidden

    def build(self, vocabulary: int) -> CausalTransformer:
        return CausalTransformer(self, vocabulary)

    def narrowed(self, share: float) -> CausalTransformerConfig:
        raise RecipeError(
            "a left-to-right model does not read what follows a blank, so it cannot be a generator that fills "
            'blanks; leave out replaced-tokens, or set model.type = "transformer"'
        )


class CausalTransformer(BlockStack):
    config: CausalTransformerConfig
    embeddings: WordsAndPositions

    def __init__(self, config: CausalTransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = WordsAndPositions(vocabulary, config)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        # pre-norm blocks do not normalise the residual stream
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()

    def attention_masks(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        return [AttentionMask(causal=True)] * self.depth

    def seen(self, length: int) -> int:
        return self.depth * (length + 1) // 2

    # Generating (`models/generation/generator.py`)

    closes_prompts = False
    """The text continues where the prompt ends."""

    def max_new_tokens(self, length: int) -> int:
        return self.reach - length

    def generation_state(
        self, prompts: TokenBatch[Tensor], *, max_new: int, head: Callable[[Tensor], Tensor]
    ) -> CausalGenerationState:
        return CausalGenerationState(self, prompts, max_new=max_new, head=head)

    def continuation_states(self, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
        return continuation_states(self, prompts, continuations)


class WordsAndPositions(nn.Module):
    """dropout(words[id_i] + positions[i]): the input of GPT's blocks."""

    def __init__(self, vocabulary: int, config: CausalTransformerConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.hidden)
        self.positions = nn.Embedding(config.max_positions, config.hidden)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: TokenBatch[Tensor]) -> Tensor:
        x_ND: Tensor = self.dropout(self.words(batch.ids) + self.positions(batch.positions))
        return x_ND


class ResidualLinear(nn.Linear):
    """A linear layer that ends in the residual stream, with smaller initial weights (GPT-2, §2.3)."""

    def __init__(self, inner: int, hidden: int, *, std: float) -> None:
        super().__init__(inner, hidden)
        self.std = std

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        drawn = torch.empty(self.weight.shape, dtype=torch.float32)
        nn.init.trunc_normal_(drawn, std=self.std, a=-2 * self.std, b=2 * self.std, generator=generator)
        self.weight.copy_(drawn)
        self.bias.zero_()


def _norm(config: CausalTransformerConfig) -> nn.Module:
    return nn.LayerNorm(config.hidden, eps=config.norm_epsilon)


def _block(config: CausalTransformerConfig) -> Block:
    attention = Attention(hidden=config.hidden, heads=config.heads, dropout=config.attention_dropout)
    feedforward = FeedForward(hidden=config.hidden, inner=config.inner, activation=config.activation)
    if config.residual_init:
        std = config.init / math.sqrt(2 * config.layers)
        attention.out = ResidualLinear(config.hidden, config.hidden, std=std)
        feedforward.down = ResidualLinear(config.inner, config.hidden, std=std)
    return Block(
        attention=attention,
        attention_norm=_norm(config),
        feedforward=feedforward,
        feedforward_norm=_norm(config),
        norm=config.norm,
        dropout=config.dropout,
    )
