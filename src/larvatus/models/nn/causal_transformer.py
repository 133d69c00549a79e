"""The left-to-right transformer: the blocks of the encoder, in which a token attends only to those before it.

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

**Generation** reads the prompts once, then one token of each per step (`CausalGenerationState`). Keys and values of all
tokens are cached (`KeyValueCache`), so that a step computes only the new token, whatever the length of the prompts.
Nothing is padded: sequences of one length form one block, as in `GroupedLayout`, and since all get a token at each
step, they stay of one length. They are sorted by length; `order` is the sorting.

B sequences in groups of G, N tokens of the prompts, M tokens of the continuations, D hidden size, H heads, K size of a
head, L tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Size
from larvatus.models.nn.attention.attention import Attention, attend_grouped, self_attention
from larvatus.models.nn.attention.layout import AttentionMask, GroupedLayout
from larvatus.models.nn.block_stack import Block, BlockStack, NormOrder
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionSettings
from larvatus.models.nn.feedforward import Activation, FeedForward


@dataclass(eq=False)
class _Block:
    """Sequences of one length."""

    length: int
    count: int
    capacity: int
    """Tokens that it can hold."""
    layers: list[Tensor] = field(default_factory=list)
    """For each layer [2, G, H, max_new, K], filled up to `length`."""

    def take(self, rows_G: Tensor) -> _Block:
        layers = []
        for kv in self.layers:
            taken = kv.new_empty(2, len(rows_G), *kv.shape[2:])
            taken[:, :, :, : self.length] = kv[:, rows_G, :, : self.length]
            layers.append(taken)
        return _Block(self.length, len(rows_G), self.capacity, layers)


@dataclass(eq=False)
class KeyValueCache:
    blocks: list[_Block]
    order: Ints  # [B] the sequence at each place, by length
    device: torch.device

    @classmethod
    def of(cls, lengths: Ints, *, max_new: int, device: torch.device) -> KeyValueCache:
        """An empty cache for prompts of these lengths, to which at most `max_new` tokens are added."""
        sizes, counts = np.unique(lengths, return_counts=True)
        blocks = [
            _Block(length=size, count=count, capacity=size + max_new)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        ]
        return cls(blocks, np.argsort(lengths, kind="stable"), device)

    @property
    def lengths(self) -> Ints:
        """[B] in the cache's order."""
        return np.repeat([block.length for block in self.blocks], [block.count for block in self.blocks])

    def keep(self, kv_N2HK: Tensor) -> None:
        """Store the keys and values of the prompts in the next layer."""
        parts = torch.split(kv_N2HK, [block.count * block.length for block in self.blocks])
        for block, part in zip(self.blocks, parts, strict=True):
            kv_2GHLK = part.unflatten(0, (block.count, block.length)).permute(2, 0, 3, 1, 4)
            held = kv_2GHLK.new_empty(*kv_2GHLK.shape[:3], block.capacity, kv_2GHLK.shape[-1])
            held[:, :, :, : block.length] = kv_2GHLK
            block.layers.append(held)

    def attend(self, layer: int, qkv_B3HK: Tensor, *, window: int = 0) -> Tensor:
        """Attention of the newest token of each sequence to itself and those before, whose keys and values are cached.

        With a window, only to those at most that far back.
        """
        out = []
        parts = torch.split(qkv_B3HK, [block.count for block in self.blocks])
        for block, qkv_G3HK in zip(self.blocks, parts, strict=True):
            held, last = block.layers[layer], block.length
            held[:, :, :, last] = qkv_G3HK[:, 1:].transpose(0, 1)
            first = max(0, last - window) if window else 0
            k_GHLK, v_GHLK = held[:, :, :, first : last + 1]
            out.append(self_attention(qkv_G3HK[:, 0, :, None], k_GHLK, v_GHLK)[:, :, 0])
        return torch.cat(out)

    def advance(self) -> None:
        """Count the newest token as part of the sequence."""
        for block in self.blocks:
            block.length += 1

    def take(self, rows: Ints) -> None:
        """Keep, repeat or reorder sequences."""
        place_of = np.empty_like(self.order)
        place_of[self.order] = np.arange(len(self.order))
        places = place_of[rows]
        borders = np.cumsum([block.count for block in self.blocks])
        block_of = np.searchsorted(borders, places, side="right")
        blocks = []
        for number, block in enumerate(self.blocks):
            chosen = places[block_of == number] - (borders[number] - block.count)
            if np.array_equal(chosen, np.arange(block.count)):
                blocks.append(block)
            elif len(chosen):
                blocks.append(block.take(torch.from_numpy(chosen).to(self.device)))
        self.blocks = blocks
        self.order = np.argsort(block_of, kind="stable")


Attend = Callable[[int, Attention, Tensor, AttentionMask], Tensor]


class CausalGenerationState:
    """Implements the `GenerationState` protocol of `generation/`."""

    def __init__(
        self, stack: BlockStack, prompts: TokenBatch[Tensor], *, max_new: int, head: Callable[[Tensor], Tensor]
    ) -> None:
        lengths = prompts.lengths.cpu().numpy()
        if not len(lengths) or lengths.min() < 1:
            raise UsageError("a prompt without a token cannot be continued; give it at least a start token")
        self.stack = stack
        self.head = head
        self.cache = KeyValueCache.of(lengths, max_new=max_new, device=prompts.ids.device)
        self.logits_BV = self._read(prompts)

    def logits(self) -> Tensor:
        return self.logits_BV

    def extend(self, ids_B: Tensor) -> None:
        lengths, order_B = self.cache.lengths, _on(self.cache.order, ids_B.device)
        positions_B = _on(lengths, ids_B.device)
        newest = _batch(ids_B[order_B], lengths=torch.ones_like(positions_B), positions=positions_B)
        z_BD = self._through(newest, self._attend_newest, longest=int(lengths.max()) + 1)
        self.cache.advance()
        self.logits_BV = self._scored(torch.empty_like(z_BD).index_copy_(0, order_B, z_BD))

    def take(self, rows_R: Tensor) -> None:
        rows = rows_R.cpu().numpy()
        if np.array_equal(rows, np.arange(len(self.cache.order))):
            return
        self.cache.take(rows)
        self.logits_BV = self.logits_BV[rows_R.to(self.logits_BV.device)]

    def _read(self, prompts: TokenBatch[Tensor]) -> Tensor:
        """Run the prompts through the blocks and cache their keys and values. → [B, V]"""
        layout: GroupedLayout = GroupedLayout.of(prompts.lengths)

        def attend(layer: int, attention: Attention, x_ND: Tensor, mask: AttentionMask) -> Tensor:
            qkv_N3HK = attention.project(x_ND, mask)
            self.cache.keep(qkv_N3HK[:, 1:])
            y_NHK: Tensor = attend_grouped(qkv_N3HK, layout, mask)
            return y_NHK

        longest = int(self.cache.lengths.max())
        ids_N, positions_N = layout.arrange(prompts.ids), layout.arrange(prompts.positions)
        by_length = _batch(ids_N, lengths=prompts.lengths, positions=positions_N)
        z_ND = layout.restore(self._through(by_length, attend, longest=longest))
        return self._scored(z_ND[prompts.lengths.cumsum(0) - 1])

    def _attend_newest(self, layer: int, attention: Attention, x_BD: Tensor, mask: AttentionMask) -> Tensor:
        return self.cache.attend(layer, attention.project(x_BD, mask), window=mask.window)

    def _through(self, batch: TokenBatch[Tensor], attend: Attend, *, longest: int) -> Tensor:
        """Run the batch through all blocks, with attention computed by `attend` up to the heads' outputs."""
        x_ND = self.stack.embeddings(batch)
        for layer, mask in enumerate(self.stack.attention_masks(batch.positions, longest=longest)):
            block = cast(Block, self.stack.blocks[layer % len(self.stack.blocks)])
            x_ND = block.through(x_ND, partial(_attended, attend, layer, block.attention, mask))
        z_ND: Tensor = self.stack.final_norm(x_ND)
        return z_ND

    def _scored(self, z_BD: Tensor) -> Tensor:
        return self.head(z_BD).float()


def _attended(attend: Attend, layer: int, attention: Attention, mask: AttentionMask, x_ND: Tensor) -> Tensor:
    out_ND: Tensor = attention.out(attend(layer, attention, x_ND, mask).flatten(-2))
    return out_ND


def continuation_states(stack: BlockStack, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
    """The state that predicts each token of the continuations, [M, D]: one pass over prompts and continuations.

    The last token of a continuation predicts nothing, and is not read.
    """
    before, after = prompts.lengths.cpu().numpy(), continuations.lengths.cpu().numpy()
    if len(before) and before.min() < 1:
        raise UsageError("a continuation needs a token to follow; give the prompt at least a start token")
    lengths = before + np.maximum(after - 1, 0)
    within, device = ranges(lengths), prompts.ids.device
    of_prompt = within + np.repeat(edges(before)[:-1], lengths)
    of_continuation = within + np.repeat(edges(after)[:-1] - before, lengths) + prompts.size
    sources = np.where(within < np.repeat(before, lengths), of_prompt, of_continuation)
    ids_N = torch.cat([prompts.ids, continuations.ids])[_on(sources, device)]
    whole = _batch(ids_N, lengths=_on(lengths, device), positions=_on(within, device))
    z_ND: Tensor = stack(whole, limit=int(lengths.max(initial=0)))
    predicting = np.repeat(edges(lengths)[:-1] + before - 1, after) + ranges(after)
    return z_ND[_on(predicting, device)]


def _batch(ids_N: Tensor, *, lengths: Tensor, positions: Tensor) -> TokenBatch[Tensor]:
    nothing_N = torch.zeros_like(positions)
    return TokenBatch(ids=ids_N, lengths=lengths, positions=positions, segments=nothing_N, words=nothing_N)


def _on(array: Ints, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


# The transformer.


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
