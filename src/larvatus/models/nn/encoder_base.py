"""The interface of every encoder: a flat batch of tokens in, a vector for each token out, from any of its layers.

    states = encoder(batch)                       # [N, D] of the last layer
    low, top = encoder(batch, layers=[0, 12])     # of the embeddings (layer 0) and of layer 12
    encoder.width, encoder.depth, encoder.reach   # D, layers, longest sequence

Objectives, heads, inference and bundles use only this; `encoder.py` lists the encoders. An encoder refuses what it
cannot do (attention weights, shared embeddings). N tokens in the flat batch, D hidden size, V vocabulary, L layers, H
heads.

`AttentionEncoder` and `AttentionSettings` are what encoders of attention blocks have in common.

Encoders support activation checkpointing (Chen et al. 2016, *Training deep nets with sublinear memory cost*), a layer
at a time:

    set_activation_checkpointing(network, True)     # in every encoder, decoder and generator of the network
    states = encoder(batch)                         # a layer stores only its input; backward recomputes the rest

The results are equal bit for bit: dropout samples from torch's generators, whose states are stored with each layer's
input and restored before it is recomputed, and gradients flow through the graph of the first pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.ranges import Layers, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.models.nn.attention.layout import GroupedLayout
from larvatus.models.nn.feedforward import Activation

T = TypeVar("T")


class TokenOrder(Protocol):
    """The order of tokens inside the blocks."""

    def arrange(self, x: Tensor) -> Tensor:
        """Rows of the batch in the order of the blocks."""

    def restore(self, x: Tensor) -> Tensor:
        """The inverse."""


class ActivationCheckpointing(nn.Module):
    """A module made of layers that the backward pass may recompute."""

    recomputes: bool = False
    """Whether activations are recomputed instead of stored."""

    def layer(self, apply: Callable[..., T], *inputs: Any, **more: Any) -> T:
        """Apply a layer to its inputs, checkpointed if set; the first input is a tensor."""
        if not (self.recomputes and torch.is_grad_enabled()):
            return apply(*inputs, **more)
        result: T = checkpoint(apply, *inputs, use_reentrant=False, **more)
        return result


def set_activation_checkpointing(module: nn.Module, recomputes: bool) -> None:
    """Switch activation checkpointing on or off in every part of a module."""
    for part in module.modules():
        if isinstance(part, ActivationCheckpointing):
            part.recomputes = recomputes


class ModelConfig(Settings, path="model.", error=RecipeError):
    """Settings of an encoder: what others read of them. An encoder overrides each with a field or a property."""

    @property
    def hidden(self) -> int:
        """Size of a token's vector."""
        raise NotImplementedError

    @property
    def layers(self) -> int:
        """Layers above the embeddings."""
        raise NotImplementedError

    @property
    def max_positions(self) -> int:
        """Longest sequence, in tokens."""
        raise NotImplementedError

    @property
    def blocks(self) -> int:
        """Layers with weights of their own."""
        return self.layers

    @property
    def segments(self) -> int:
        """Kinds of segment; 0: the texts of a pair have no segment embeddings."""
        return 0

    @property
    def word_width(self) -> int:
        """Size of the word vectors to which heads are tied."""
        return self.hidden

    @property
    def activation(self) -> Activation:
        """Nonlinearity of heads, as of the encoder's own layers."""
        return "gelu"

    @property
    def norm_epsilon(self) -> float:
        """Added to the variance in norms of heads."""
        return 1e-12

    @property
    def biases(self) -> bool:
        """Whether linear layers and norms, of heads too, have biases."""
        return True

    @property
    def init(self) -> float:
        """Standard deviation of the initial weights."""
        return 0.02

    @property
    def enclosed(self) -> bool:
        """Whether it expects a special token before every text and one after it."""
        return False

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token keeps for the backward pass, at least."""
        raise NotImplementedError

    def least_weights(self, vocabulary: int) -> int:
        """Weights, at least."""
        raise NotImplementedError

    def build(self, vocabulary: int) -> Encoder:
        """The encoder, with torch's initial weights."""
        raise NotImplementedError

    def narrowed(self, share: float) -> ModelConfig:
        """A narrower encoder over the same embeddings, its width a share of this one's (ELECTRA's generator)."""
        raise NotImplementedError


class Encoder(ActivationCheckpointing, ABC):
    config: ModelConfig

    @property
    def width(self) -> int:
        """D, the size of a token's vector."""
        return self.config.hidden

    @property
    def depth(self) -> int:
        """Layers above the embeddings, which are layer 0."""
        return self.config.layers

    @property
    def reach(self) -> int:
        """Tokens of the longest sequence that it reads."""
        return self.config.max_positions

    @property
    def device(self) -> torch.device:
        return self.word_vectors.device

    @property
    @abstractmethod
    def word_vectors(self) -> Tensor:
        """[V, E] the output word vectors to which heads are tied."""

    @abstractmethod
    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """The last layer's vectors [N, D]; with `layers`, a list of those layers, in that order.

        No layer above the highest requested one is computed. `limit` promises that no sequence is longer, so that on
        CUDA nothing has to wait for the lengths.
        """

    @abstractmethod
    def parts(self) -> list[tuple[int, nn.Module]]:
        """All modules with weights from the bottom up, each with the number of layers above it: 0 for the highest.

        Layers that share one module appear once.
        """

    @abstractmethod
    def flops(self, length: int) -> int:
        """Floating-point operations per token of a sequence in training, forward and backward."""

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """The last layer's vectors of some tokens, by their positions in the flat batch: [B] → [B, D]."""
        states_ND: Tensor = self(batch, limit=limit)
        return states_ND.index_select(0, places_B)

    def with_final_norm(self, x_ND: Tensor) -> Tensor:
        """States of a layer below the last, normed as those of the last are: for the lens."""
        return x_ND

    # Optional capabilities

    @property
    def heads(self) -> int:
        """Attention heads of a layer. Refused, like the two below, by encoders without attention."""
        raise self._no_attention()

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Attention weights: for each layer, lowest first, α [H, L, L] of each sequence in the batch's order."""
        raise self._no_attention()

    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        """Mask heads, (layer, head) counted from 1, in the weights themselves."""
        raise self._no_attention()

    def _no_attention(self) -> UsageError:
        return UsageError(f"{type(self).__name__} has no attention heads; use a model with attention, such as bert")

    def share_embeddings(self, other: Encoder) -> None:
        """Use the embeddings of another encoder: the same tensors, not copies."""
        raise RecipeError(
            f"{type(self).__name__} cannot share its embeddings with a generator; "
            "leave out replaced-tokens, or set objectives.replaced-tokens.generator = 0"
        )


class AttentionEncoder(Encoder):
    """An encoder whose layers are blocks with an `attention`, whose `out` projects all heads."""

    config: Any
    """Settings with `heads`."""
    blocks: nn.ModuleList
    """One for each layer, or one for all."""

    @property
    def heads(self) -> int:
        heads: int = self.config.heads
        return heads

    def block(self, layer: int) -> Any:
        """The block of a layer, counted from 0."""
        return self.blocks[layer % len(self.blocks)]

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """As in `Encoder`. A layer below the last is given as the input of the next one, before any final norm."""
        states = self.read(batch, [self.depth] if layers is None else layers, limit)
        return states[self.depth] if layers is None else [states[layer] for layer in layers]

    @abstractmethod
    def read(self, batch: TokenBatch[Tensor], layers: Sequence[int], limit: int | None) -> dict[int, Tensor]:
        """The states of these layers in the order of the batch."""

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> TokenOrder:
        """Where the blocks have the tokens of sequences of these lengths [B]; `limit` as in `Encoder.forward`."""
        return GroupedLayout.of(lengths)

    def run_blocks(self, x_ND: Tensor, layers: Sequence[int], inputs: Sequence[tuple[Any, ...]]) -> dict[int, Tensor]:
        """The states of these layers, from the embeddings; `inputs` are those of each block after the states."""
        states = {0: x_ND} if 0 in layers else {}
        for layer in range(max(layers, default=0)):
            x_ND = self.layer(self.block(layer), x_ND, *inputs[layer])
            if layer + 1 in layers:
                states[layer + 1] = x_ND
        return states

    def longest(self, lengths: Tensor, limit: int | None) -> int:
        """The longest sequence: `limit` if given; else the lengths are read, which CUDA has to wait for."""
        longest = limit if limit is not None else int(lengths.max()) if len(lengths) else 0
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        return longest

    @torch.no_grad()
    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        for layer, head in heads:
            out = cast(nn.Linear, self.block(layer - 1).attention.out)
            size = out.in_features // self.heads
            out.weight[:, (head - 1) * size : head * size] = 0

    def block_parts(self) -> list[tuple[int, nn.Module]]:
        """The blocks as in `parts`."""
        return [(len(self.blocks) - 1 - number, block) for number, block in enumerate(self.blocks)]


def by_sequence(weights: Sequence[Tensor], lengths: Tensor) -> list[Tensor]:
    """Attention weights of sequences that are sorted by length, in the order of the batch."""
    order = torch.argsort(lengths, stable=True).tolist()
    sorted_weights = dict(zip(order, weights, strict=True))
    return [sorted_weights[number] for number in range(len(order))]


class AttentionSettings(ModelConfig):
    """First settings of encoders of attention blocks, and the sizes that follow from them."""

    layers: Layers = 12
    """Blocks."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden, and two thirds of that if gated (as many weights)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.hidden, self.heads)

    @property
    def gated(self) -> bool:
        """Whether the feedforward layer has a gate."""
        return False

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, resolved."""
        return self.feedforward or default_inner(self.hidden, gated=self.gated)

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token keeps for the backward pass: queries, keys, values, out, inner of every layer."""
        return self.layers * (4 * self.hidden + self.inner)


def default_inner(hidden: int, *, gated: bool) -> int:
    """4 × hidden; if gated, two thirds of it, rounded up to a multiple of 64, which kernels prefer."""
    return -(-8 * hidden // (3 * 64)) * 64 if gated else 4 * hidden


def check_heads(hidden: int, heads: int, *, or_else: str = "") -> None:
    """Refuse heads that do not share the hidden size equally."""
    if hidden % heads:
        fit = [count for count in range(1, hidden + 1) if hidden % count == 0]
        near = min(fit, key=lambda count: abs(count - heads))
        raise RecipeError(
            f"model.hidden = {hidden} is not divisible by model.heads = {heads}; set model.heads = {near}{or_else}"
        )


def fewer_heads(hidden: int, *, size: int) -> int:
    """Heads of about this size that share a hidden size equally; at least one."""
    return next(heads for heads in range(max(1, hidden // size), 0, -1) if hidden % heads == 0)
