"""Prompts as a model reads them, and the text of what it adds.

prompt_ids("Once upon a", tokenizer, closed=False)           # dressed at its beginning alone: the text goes on
prompt_ids("translate: Haus", tokenizer, closed=True)        # for an encoder–decoder: a finished text

Prompts, in tokens, that ask a model that writes for the missing part of a text.

    asking = InfillPrompts.of(network, tokenizer)
    asking.ids(before, after)                       # what the model reads
    asking.opening                                  # how its answer begins: written for it, not by it

A left-to-right model reads what precedes the place; what follows it is not read. An encoder–decoder (T5, Raffel et al.
2020) reads the whole text with its first sentinel at the place. Its decoder writes that sentinel, then the missing
tokens, then the next sentinel. One that was fine-tuned to answer texts (`writing`) knows no blanks: it reads a whole
text and writes another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.generation.generator import can_generate, require_generator
from larvatus.models.network import Network

TAIL = 16
"""Tokens of the prompt beside which new ones are decoded: enough for spaces and characters of several bytes."""


def prompt_ids(text: str, tokenizer: Tokenizer, *, closed: bool, label: str = "the prompt") -> Ints:
    """The tokens that the model reads; those of an empty prompt are its start token."""
    ids = np.asarray(tokenizer.encode(text).ids, dtype=np.int64)
    template = tokenizer.template.single
    dressed = template.ids(ids) if closed else np.concatenate([np.array(template.gaps[0], np.int64), ids])
    if len(dressed):
        return dressed
    start = start_id(tokenizer)
    if start is None:
        raise UsageError(f"{label} is empty, and the vocabulary has no start or end token to begin at; give some words")
    return np.array([start], np.int64)


def start_id(tokenizer: Tokenizer) -> int | None:
    """What the first token of a text follows where nothing stands before texts: the token that ends the one before."""
    return next(iter(end_ids(tokenizer)), _named(tokenizer, "bos_token"))


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The token by which a text ends: the `eos_token` that the tokenizer's files name, else what stands after texts."""
    named = _named(tokenizer, "eos_token")
    return frozenset(tokenizer.template.single.gaps[-1][-1:] if named is None else (named,))


def continuation_text(tokenizer: Tokenizer, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """What these tokens add to a prompt, its space before the first word included; without the token that ends it."""
    ends = end_ids(tokenizer)
    written = list(ids[:-1]) if ids and ids[-1] in ends else list(ids)
    tail = [index for index in prompt if index not in tokenizer.special_ids][-TAIL:]
    before, whole = tokenizer.decode(tail), tokenizer.decode([*tail, *written])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(written)


def _named(tokenizer: Tokenizer, role: str) -> int | None:
    """The token that `tokenizer_config.json` names, by a string or a description; None where it names none."""
    named: Any = tokenizer.config.get(role)
    content = named.get("content") if isinstance(named, dict) else named
    return tokenizer.id(content) if isinstance(content, str) else None


def can_infill(network: Network, tokenizer: Tokenizer) -> bool:
    """Whether the model can write a missing part of a text: gpt, gpt2, and t5 before it is fine-tuned."""
    return can_generate(network) and not InfillPrompts.of(network, tokenizer).answers


@dataclass(frozen=True, eq=False)
class InfillPrompts:
    """Prompts of one model."""

    tokenizer: Tokenizer
    opening: Ints
    """Tokens that every answer begins with: the sentinel of the blank, or none."""
    ends: frozenset[int]
    """Tokens by which an answer ends."""
    closed: bool
    """Whether the model reads what follows the place too."""

    @classmethod
    def of(cls, network: Network, tokenizer: Tokenizer, *, name: str = "the model") -> InfillPrompts:
        """Refused where the model does not write, and where an encoder–decoder has no sentinels."""
        closed = require_generator(network, name=name).encoder.closes_prompts
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
        frame = self.tokenizer.template.single
        if self.closed:
            parts = [before, self.opening] if after is None else [before, self.opening, after]
            return np.asarray(frame.ids(np.concatenate(parts)), np.int64)
        read = np.concatenate([np.array(frame.gaps[0], np.int64), before])
        start = start_id(self.tokenizer)
        if len(read) or start is None:
            return read
        return np.array([start], np.int64)
