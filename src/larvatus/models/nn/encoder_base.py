"""The interface of every encoder: a flat batch of tokens in, a vector for each token out, from any of its layers.

    states = encoder(batch)                       # [N, D] of the last layer
    low, top = encoder(batch, layers=[0, 12])     # of the embeddings (layer 0) and of layer 12
    encoder.width, encoder.depth, encoder.reach   # D, layers, longest sequence

Objectives, heads, inference and bundles use only this; `encoder.py` lists the encoders. An encoder refuses what it
cannot do (attention weights, shared embeddings). N tokens in the flat batch, D hidden size, V vocabulary, L layers, H
heads.

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
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.models.nn.feedforward import Activation

T = TypeVar("T")


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


class ModelConfig(Protocol):
    """The interface of an encoder's settings: fields or properties, as the encoder has them."""

    @property
    def hidden(self) -> int:
        """Size of a token's vector."""

    @property
    def layers(self) -> int:
        """Layers above the embeddings."""

    @property
    def blocks(self) -> int:
        """Layers with weights of their own."""

    @property
    def max_positions(self) -> int:
        """Longest sequence, in tokens."""

    @property
    def segments(self) -> int:
        """Kinds of segment; 0 for none."""

    @property
    def word_width(self) -> int:
        """Size of the word vectors to which heads are tied."""

    @property
    def activation(self) -> Activation:
        """Nonlinearity of heads, as of the encoder's own layers."""

    @property
    def norm_epsilon(self) -> float:
        """Added to the variance in norms of heads."""

    @property
    def biases(self) -> bool:
        """Whether linear layers and norms of heads have biases."""

    @property
    def init(self) -> float:
        """Standard deviation of the initial weights."""

    @property
    def enclosed(self) -> bool:
        """Whether it expects a special token before every text and one after it."""

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token keeps for the backward pass, at least."""

    def least_weights(self, vocabulary: int) -> int:
        """Weights, at least."""

    def build(self, vocabulary: int) -> Encoder:
        """The encoder, with torch's initial weights."""

    def narrowed(self, share: float) -> ModelConfig:
        """A narrower encoder over the same embeddings, its width a share of this one's (ELECTRA's generator)."""


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

    # Optional capabilities

    @property
    def heads(self) -> int:
        """Attention heads of a layer. Refused, like the three below, by encoders without attention."""
        raise self._no_attention()

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """Attention weights: for each layer, lowest first, α [H, L, L] of each sequence in the batch's order."""
        raise self._no_attention()

    def with_heads(self, batch: TokenBatch[Tensor], kept_LH: Tensor) -> Tensor:
        """The last layer's vectors, the output of each head multiplied: 0 masks it (Michel et al. 2019)."""
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
