"""The one place that says what a model writes with: an encoder that continues, and the head that predicts its tokens.

    generator = the_generator(network)                 # refused where the model reads both sides
    generator.encoder.continuing(prompts, room=20, head=generator.head)

M states, D hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.models.generation.continuing import Continues
from larvatus.models.network import Network

HEADS = ("causal-lm", "denoising", "writing")
"""Objectives that teach a model to write, token after token."""


class ContinuingEncoder(Continues, Protocol):
    """An encoder that can generate."""

    @property
    def reach(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def word_vectors(self) -> Tensor: ...


class PredictsTokens(Protocol):
    def logits(self, z_MD: Tensor, words_VE: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Generator:
    encoder: ContinuingEncoder
    objective: PredictsTokens

    def head(self, z_MD: Tensor) -> Tensor:
        """Scores of every word, [M, V]."""
        return self.objective.logits(z_MD, self.encoder.word_vectors)

    @property
    def budget(self) -> int:
        """Tokens that are held at once, prompts and what may follow them."""
        return 65_536 if self.encoder.device.type == "cuda" else 8_192


def can_generate(network: Network) -> bool:
    """Whether the model writes: it continues texts (gpt), or writes what is missing (t5)."""
    return isinstance(network.encoder, Continues) and any(head in network.objectives for head in HEADS)


def the_generator(network: Network, *, name: str = "the model") -> Generator:
    """What a model writes with; refused where it cannot."""
    if not isinstance(network.encoder, Continues):
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
    return Generator(cast(ContinuingEncoder, network.encoder), cast(PredictsTokens, scorer))
