"""What every encoder is: a flat batch of tokens in, a vector for each token out, of whichever layers are asked for.

    states = encoder(batch)                       # [N, D] of the last layer
    low, top = encoder(batch, layers=[0, 12])     # of the embeddings (layer 0) and of layer 12
    encoder.width, encoder.depth, encoder.reach   # D, layers, longest sequence

Objectives, heads, embed, probe, cloze and bundle know this and no more; `encoder.py` names the encoders there are.
What not every encoder can do (attention weights, shared embeddings) is refused by those that cannot, in one line.
N tokens in the flat batch, D hidden size, V vocabulary, L layers, H heads.

Activation checkpointing (Chen et al. 2016, *Training deep nets with sublinear memory cost*), a layer at a time.

    set_recomputing(network, True)          # every encoder in it: what reads, what writes, a generator
    states = encoder(batch)                 # a layer keeps its input alone; the backward pass computes the rest again

The same numbers come out to the bit: dropout draws from torch's generators, whose states are kept with each layer's
input and put back before it is computed again, and the graph that gradients flow through is that of the first pass.
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
    """A module made of layers, which may be computed again in the backward pass."""

    recomputes: bool = False
    """Whether they are, instead of keeping what they leave."""

    def layer(self, apply: Callable[..., T], *inputs: Any, **more: Any) -> T:
        """What a layer makes of its inputs; the first is a tensor."""
        if not (self.recomputes and torch.is_grad_enabled()):
            return apply(*inputs, **more)
        result: T = checkpoint(apply, *inputs, use_reentrant=False, **more)
        return result


def set_activation_checkpointing(module: nn.Module, recomputes: bool) -> None:
    """Whether all that stands in a module keeps what its layers leave, or computes it again."""
    for part in module.modules():
        if isinstance(part, ActivationCheckpointing):
            part.recomputes = recomputes


class ModelConfig(Protocol):
    """What the settings of an encoder say to those who build on it: fields or properties, as the encoder has them."""

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
        """Kinds of segment told apart; 0 for none."""

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
        """Whether it counts on a special token before every text and one after it."""

    @property
    def kept_numbers(self) -> int:
        """Numbers that a token leaves for the backward pass, at least."""

    def least_weights(self, vocabulary: int) -> int:
        """Weights, at least."""

    def build(self, vocabulary: int) -> Encoder:
        """The encoder, with weights as torch makes them."""

    def narrowed(self, share: float) -> ModelConfig:
        """A smaller one over the same embeddings, its width a share of this one's (ELECTRA's generator)."""


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
        """The last layer's vectors [N, D]; with `layers`, a list of those asked for, in that order.

        No layer above the highest one asked for is computed. `limit` promises that no sequence is longer, so that on
        CUDA nothing has to wait for the lengths.
        """

    @abstractmethod
    def parts(self) -> list[tuple[int, nn.Module]]:
        """All modules with weights from the bottom up, each with how many layers stand above it: 0 for the highest.

        Layers that are one and the same module come once.
        """

    @abstractmethod
    def flops(self, length: int) -> int:
        """Floating-point operations that one token of a sequence costs in training, forward and backward."""

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """The last layer's vectors of some tokens, by their places in the flat batch: [B] → [B, D]."""
        states_ND: Tensor = self(batch, limit=limit)
        return states_ND.index_select(0, places_B)

    # What an encoder may have besides

    @property
    def heads(self) -> int:
        """Attention heads of a layer. Refused, like the three below, where there is no attention."""
        raise self._no_attention()

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """What every head looks at: for each layer, lowest first, α [H, L, L] of each sequence in the batch's order."""
        raise self._no_attention()

    def with_heads(self, batch: TokenBatch[Tensor], kept_LH: Tensor) -> Tensor:
        """The last layer's vectors, the output of each head multiplied: 0 masks it (Michel et al. 2019)."""
        raise self._no_attention()

    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        """Mask heads, (layer, head) counted from 1, in the weights themselves."""
        raise self._no_attention()

    def _no_attention(self) -> UsageError:
        return UsageError(
            f"{type(self).__name__} has no attention heads to look at; use a model with attention, such as bert"
        )

    def share_embeddings(self, other: Encoder) -> None:
        """Have the embeddings of another: the same tensors, not copies."""
        raise RecipeError(
            f"{type(self).__name__} cannot share its embeddings with a generator; "
            "leave out replaced-tokens, or set objectives.replaced-tokens.generator = 0"
        )
