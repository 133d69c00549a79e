"""The left-to-right transformer: the same blocks, and a token sees those before it alone.

    GPT     (Radford et al. 2018)      post-norm: the norm after each residual connection, as in BERT
    GPT-2   (Radford et al. 2019)      pre-norm, with one more norm above the last block; smaller initial weights where
                                       layers join the residual stream

    x_i = dropout(words[id_i] + positions[i])        no segments, and no norm of the embeddings

What tokens see is data of the attention (`AttentionMask(causal=True)`), so nothing of the block is written twice.

    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = CausalTransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10).eval()
    >>> batch = TokenBatch.of([[7, 8, 9], [7, 8, 1]]).map(torch.from_numpy)
    >>> first, second = encoder(batch).split(3)
    >>> bool(torch.equal(first[:2], second[:2]))                 # what follows changes nothing
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.attention_mask import AttentionMask
from larvatus.models.nn.block import Block, NormOrder
from larvatus.models.nn.block_stack import BlockStack
from larvatus.models.nn.causal_generation import CausalGenerationState, continuation_states
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.feedforward import Activation, FeedForward


class CausalTransformerConfig(Settings, path="model.", error=RecipeError, tag_field="type", tag="causal-transformer"):
    """What a recipe says of it; the defaults are GPT's."""

    layers: Layers = 12
    """Blocks."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden."""
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
    """Divide those of layers that end in the residual stream by √(2 × layers), of which there are so many (GPT-2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; set model.heads = {near}"
            )

    @property
    def blocks(self) -> int:
        return self.layers

    @property
    def segments(self) -> int:
        """None: the texts of a pair are told apart by what stands between them."""
        return 0

    @property
    def word_width(self) -> int:
        return self.hidden

    @property
    def biases(self) -> bool:
        return True

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        return self.feedforward or 4 * self.hidden

    @property
    def enclosed(self) -> bool:
        """Published vocabularies put nothing around a text."""
        return False

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token leaves for the backward pass: queries, keys, values, out, inner of every layer."""
        return self.layers * (4 * self.hidden + self.inner)

    def least_weights(self, vocabulary: int) -> int:
        block = 4 * self.hidden**2 + 2 * self.hidden * self.inner
        return block * self.layers + (vocabulary + self.max_positions) * self.hidden

    def build(self, vocabulary: int) -> CausalTransformer:
        return CausalTransformer(self, vocabulary)

    def narrowed(self, share: float) -> CausalTransformerConfig:
        raise RecipeError(
            "a left-to-right model sees nothing behind a blank, so it is no generator that fills blanks; leave out "
            'replaced-tokens, or set model.type = "transformer"'
        )


class CausalTransformer(BlockStack):
    config: CausalTransformerConfig
    embeddings: WordsAndPositions

    def __init__(self, config: CausalTransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = WordsAndPositions(vocabulary, config)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        # the residual stream of pre-norm blocks is never normed inside them
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()

    def sights(self, positions_N: Tensor, *, longest: int) -> list[AttentionMask]:
        return [AttentionMask(causal=True)] * self.depth

    def seen(self, length: int) -> int:
        return self.depth * (length + 1) // 2

    # Generating (`models/generation/generator.py`)

    closes_prompts = False
    """The text goes on where the prompt ends."""

    def room_after(self, length: int) -> int:
        return self.reach - length

    def continuing(
        self, prompts: TokenBatch[Tensor], *, room: int, head: Callable[[Tensor], Tensor]
    ) -> CausalGenerationState:
        return CausalGenerationState(self, prompts, room=room, head=head)

    def predicting(self, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
        return continuation_states(self, prompts, continuations)


class WordsAndPositions(nn.Module):
    """dropout(words[id_i] + positions[i]): what GPT's blocks read."""

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
