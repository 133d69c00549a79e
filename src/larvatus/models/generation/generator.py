"""The one place that says what a model writes with: an encoder that continues, and the head that predicts its tokens.

    generator = the_generator(network)                 # refused where the model reads both sides
    generator.encoder.continuing(prompts, room=20, head=generator.head)

M states, D hidden size, V vocabulary.

What an encoder that can generate offers: sequences under way, and the tokens of given continuations at once.

    under_way = encoder.continuing(prompts, room=20, head=head)       # prompts: a flat batch, nothing padded
    under_way.logits()                                                # [B, V] of the next token of each
    under_way.extend(ids_B)                                           # one more token each; no prompt is read again
    under_way.take(rows)                                              # keep, repeat or reorder sequences

A left-to-right model goes on with the prompt itself; an encoder–decoder reads it in its encoder, and its decoder
begins at its own start token. Who generates sees no difference. An encoder has these methods, or it cannot generate: it
inherits nothing for it. `head` turns states into logits, [M, D] → [M, V]: the head of the objective that the model was
trained on, tied to the encoder's word vectors.
B sequences, N tokens of the prompts, M tokens of the continuations, D hidden size, V vocabulary.
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
    """B sequences under way, each with what has been computed of it (its keys and values)."""

    def logits(self) -> Tensor:
        """Scores of the next token of each sequence, [B, V] in float32."""

    def extend(self, ids_B: Tensor) -> None:
        """Each sequence gets one more token."""

    def take(self, rows_R: Tensor) -> None:
        """Go on with these sequences in this order: some leave, some are repeated (beams). R sequences then."""


@runtime_checkable
class CanGenerate(Protocol):
    """An encoder that can generate."""

    closes_prompts: bool
    """Whether a prompt is a finished text, dressed at its end too (an encoder–decoder reads one); a left-to-right model
    goes on where the prompt ends, and has it dressed at its beginning alone."""

    def room_after(self, length: int) -> int:
        """Tokens that can be added after a prompt of this many; negative or 0 where the prompt leaves no room."""

    def continuing(self, prompts: TokenBatch[Tensor], *, room: int, head: Head) -> GenerationState:
        """The prompts read, ready to be gone on with; at most `room` tokens will be added to each."""

    def predicting(self, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
        """The state [M, D] from which each token of the continuations is predicted, given its prompt and the tokens
        of the continuation before it; all in one pass. Both batches have B sequences."""


HEADS = ("causal-lm", "denoising", "writing")
"""Objectives that teach a model to write, token after token."""


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
        """Tokens that are held at once, prompts and what may follow them."""
        return 65_536 if self.encoder.device.type == "cuda" else 8_192


def can_generate(network: Network) -> bool:
    """Whether the model writes: it continues texts (gpt), or writes what is missing (t5)."""
    return isinstance(network.encoder, CanGenerate) and any(head in network.objectives for head in HEADS)


def require_generator(network: Network, *, name: str = "the model") -> Generator:
    """What a model writes with; refused where it cannot."""
    if not isinstance(network.encoder, CanGenerate):
        raise UsageError(
            f"{name} reads texts whole, from both sides, and cannot go on with one; generate with a model of the "
            "recipes gpt or t5, or fill blanks: larvatus fill"
        )
    objective = next((network.objectives[head] for head in HEADS if head in network.objectives), None)
    if objective is None:
        raise UsageError(
            f"{name} has no head that predicts the next token; generate with a model pretrained with causal-lm or "
            "denoising"
        )
    scorer = getattr(objective, "denoising", objective)  # of text to text, the objective of pretraining inside the head
    return Generator(cast(GeneratingEncoder, network.encoder), cast(TokenPredictor, scorer))
