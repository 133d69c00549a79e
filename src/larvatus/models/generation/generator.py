"""What a model generates with: an encoder that continues prompts, and the head that predicts its tokens.

    generator = require_generator(network)             # refused if the model reads both sides
    state = generator.encoder.generation_state(prompts, max_new=20, head=generator.head)      # prompts: a flat batch
    state.logits()                                                # [B, V] of the next token of each
    state.extend(ids_B)                                           # one more token each; no prompt is read again
    state.take(rows)                                              # keep, repeat or reorder sequences

A left-to-right model continues the prompt itself; an encoder–decoder reads it in its encoder, and its decoder begins at
its own start token. Decoding is the same for both. An encoder has these methods, or it cannot generate: it inherits
nothing for it. `head` turns states into logits, [M, D] → [M, V]: the head of the objective that the model was trained
on, tied to the encoder's word vectors. B sequences, N tokens of the prompts, M tokens of the continuations, D hidden
size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.models.network import Network

Head = Callable[[Tensor], Tensor]
"""States of the last layer → a score for every word: [M, D] → [M, V]."""


class GenerationState(Protocol):
    """B sequences that are being generated, each with its cached keys and values."""

    def logits(self) -> Tensor:
        """Scores of the next token of each sequence, [B, V] in float32."""

    def extend(self, ids_B: Tensor) -> None:
        """Add one token to each sequence."""

    def take(self, rows_R: Tensor) -> None:
        """Continue with these sequences in this order: some leave, some are repeated (beams). R sequences then."""


@runtime_checkable
class CanGenerate(Protocol):
    """An encoder that can generate."""

    closes_prompts: bool
    """Whether a prompt is a complete text with special tokens on both sides (as an encoder–decoder reads it); a
    left-to-right model continues at the end of the prompt, which has special tokens only at its start.
    """

    def max_new_tokens(self, length: int) -> int:
        """Tokens that can be added after a prompt of this many; 0 or less if the prompt is too long."""

    def generation_state(self, prompts: TokenBatch[Tensor], *, max_new: int, head: Head) -> GenerationState:
        """Read the prompts, ready to be continued; at most `max_new` tokens will be added to each."""

    def continuation_states(self, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
        """The state [M, D] from which each token of the continuations is predicted, given its prompt and the tokens of
        the continuation before it; all in one pass. Both batches have B sequences.
        """


HEADS = ("causal-lm", "denoising", "writing")
"""Objectives that train a model to generate, token by token."""


class GeneratingEncoder(CanGenerate, Protocol):
    """An encoder that can generate."""

    @property
    def reach(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def word_vectors(self) -> Tensor: ...


class TokenPredictor(Protocol):
    def logits(self, z_MD: Tensor, words_VE: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Generator:
    encoder: GeneratingEncoder
    objective: TokenPredictor

    def head(self, z_MD: Tensor) -> Tensor:
        """Scores of every word, [M, V]."""
        return self.objective.logits(z_MD, self.encoder.word_vectors)

    @property
    def budget(self) -> int:
        """Most tokens held at once, including those that may follow the prompts."""
        return 65_536 if self.encoder.device.type == "cuda" else 8_192


def can_generate(network: Network) -> bool:
    """Whether the model generates: it continues texts (gpt), or fills in what is missing (t5)."""
    return isinstance(network.encoder, CanGenerate) and any(head in network.objectives for head in HEADS)


def require_generator(network: Network, *, name: str = "the model") -> Generator:
    """The encoder and head that generate; refused if the model has none."""
    if not isinstance(network.encoder, CanGenerate):
        raise UsageError(
            f"{name} reads texts from both sides and cannot continue one; generate with a model of the recipes gpt or "
            "t5, or fill blanks: larvatus fill"
        )
    objective = next((network.objectives[head] for head in HEADS if head in network.objectives), None)
    if objective is None:
        raise UsageError(
            f"{name} has no head that predicts the next token; generate with a model pretrained with causal-lm or "
            "denoising"
        )
    scorer = getattr(objective, "denoising", objective)  # for text to text, the pretraining objective inside the head
    return Generator(cast(GeneratingEncoder, network.encoder), cast(TokenPredictor, scorer))
