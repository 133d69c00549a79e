"""Prompts as a model reads them, and the text of what it adds.

prompt_ids("Once upon a", tokenizer, closed=False)           # dressed at its beginning alone: the text goes on
prompt_ids("translate: Haus", tokenizer, closed=True)        # for an encoder–decoder: a finished text
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer

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
