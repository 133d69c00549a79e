"""Prompts, in tokens, that ask a model that writes for the missing part of a text.

    asking = BlankPrompts.of(network, tokenizer)
    asking.ids(before, after)                       # what the model reads
    asking.opening                                  # how its answer begins: written for it, not by it

A left-to-right model reads what precedes the place; what follows it is not read. An encoder–decoder (T5, Raffel et al.
2020) reads the whole text with its first sentinel at the place. Its decoder writes that sentinel, then the missing
tokens, then the next sentinel. One that was fine-tuned to answer texts (`writing`) knows no blanks: it reads a whole
text and writes another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.generation.generator import can_generate, the_generator
from larvatus.models.generation.prompts import end_ids, start_id
from larvatus.models.network import Network


def writes_into_texts(network: Network, tokenizer: Tokenizer) -> bool:
    """Whether the model can write a missing part of a text: gpt, gpt2, and t5 before it is fine-tuned."""
    return can_generate(network) and not BlankPrompts.of(network, tokenizer).answers


@dataclass(frozen=True, eq=False)
class BlankPrompts:
    """Prompts of one model."""

    tokenizer: Tokenizer
    opening: Ints
    """Tokens that every answer begins with: the sentinel of the blank, or none."""
    ends: frozenset[int]
    """Tokens by which an answer ends."""
    closed: bool
    """Whether the model reads what follows the place too."""

    @classmethod
    def of(cls, network: Network, tokenizer: Tokenizer, *, name: str = "the model") -> BlankPrompts:
        """Refused where the model does not write, and where an encoder–decoder has no sentinels."""
        closed = the_generator(network, name=name).encoder.closes_prompts
        fills = closed and "denoising" in network.objectives
        sentinels = sentinel_ids(tokenizer) if fills else np.empty(0, np.int64)
        if fills and not len(sentinels):
            raise UsageError(f"the vocabulary of {name} has no sentinels <extra_id_0> … to mark a blank with; use a t5")
        return cls(tokenizer, sentinels[:1], end_ids(tokenizer) | frozenset(sentinels.tolist()), closed)

    @property
    def answers(self) -> bool:
        """Whether the model answers whole texts, and has no place in them to write at."""
        return self.closed and not len(self.opening)

    def ids(self, before: Ints, after: Ints | None = None) -> Ints:
        """The tokens that the model reads, special ones included."""
        template = self.tokenizer.template.single
        if self.closed:
            parts = [before, self.opening] if after is None else [before, self.opening, after]
            return np.asarray(template.ids(np.concatenate(parts)), np.int64)
        read = np.concatenate([np.array(template.gaps[0], np.int64), before])
        start = start_id(self.tokenizer)
        if len(read) or start is None:
            return read
        return np.array([start], np.int64)
