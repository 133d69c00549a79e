"""What a model generates with, the prompts it reads, its output, and the likelihood of continuations.

    generator = require_generator(network)             # refused if the model reads both sides
    state = generator.encoder.generation_state(prompts, max_new=20, head=generator.head)      # prompts: a flat batch
    state.logits()                                                # [B, V] of the next token of each
    state.extend(ids_B)                                           # one more token each; no prompt is read again
    state.take(rows)                                              # keep, repeat or reorder sequences

**Generator.** A left-to-right model continues the prompt itself; an encoder–decoder reads it in its encoder, and its
decoder begins at its own start token. Decoding is the same for both. An encoder has these methods, or it cannot
generate: it inherits nothing for it. `head` turns states into logits, [M, D] → [M, V]: the head of the objective that
the model was trained on, tied to the encoder's word vectors.

**Prompts.** `prompt_ids(text, tokenizer, closed=False)` has special tokens only at the start: the text continues. A
complete text, for an encoder–decoder, is `closed`. `InfillPrompts` prompts for the missing part of a text. A
left-to-right model reads what precedes the blank; what follows is not read. An encoder–decoder (T5, Raffel et al. 2020)
reads the whole text with its first sentinel at the blank; its decoder generates that sentinel, then the missing tokens,
then the next sentinel. One that was fine-tuned to answer texts (`writing`) has no blanks: it reads a whole text and
generates another.

**Likelihood** of a continuation after a prompt, exact, over all its tokens:

    log P(y | x) = Σ_t log P(y_t | x, y_<t)

A left-to-right model reads prompt and continuation in one pass; an encoder–decoder reads the prompt in its encoder and
the continuation in its decoder. Nothing is generated, so nothing is repeated for each token. The same pass gives the
number of tokens that greedy decoding would reproduce: up to the first token that is not the likeliest one.

B sequences, N tokens of the prompts, M tokens of the continuations, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.core.errors import UsageError
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device

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


# Prompts and their output.

TAIL = 16
"""Tokens of the prompt that are decoded with new ones: enough for spaces and characters of several bytes."""


def prompt_ids(text: str, tokenizer: Tokenizer, *, closed: bool, label: str = "the prompt") -> Ints:
    """The tokens that the model reads; an empty prompt is its start token."""
    ids = np.asarray(tokenizer.encode(text).ids, dtype=np.int64)
    template = tokenizer.template.single
    wrapped = template.ids(ids) if closed else np.concatenate([np.array(template.gaps[0], np.int64), ids])
    if len(wrapped):
        return wrapped
    start = start_id(tokenizer)
    if start is None:
        raise UsageError(f"{label} is empty, and the vocabulary has no start or end token to begin at; give some words")
    return np.array([start], np.int64)


def start_id(tokenizer: Tokenizer) -> int | None:
    """The start token of a text if the template adds none: the token that ends the previous text."""
    return next(iter(end_ids(tokenizer)), _named(tokenizer, "bos_token"))


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The end token of a text: the `eos_token` of the tokenizer's files, else the last token of the template."""
    named = _named(tokenizer, "eos_token")
    return frozenset(tokenizer.template.single.gaps[-1][-1:] if named is None else (named,))


def continuation_text(tokenizer: Tokenizer, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """The text that these tokens add to a prompt, including the space before the first word, without the end token."""
    ends = end_ids(tokenizer)
    written = list(ids[:-1]) if ids and ids[-1] in ends else list(ids)
    tail = [index for index in prompt if index not in tokenizer.special_ids][-TAIL:]
    before, whole = tokenizer.decode(tail), tokenizer.decode([*tail, *written])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(written)


def _named(tokenizer: Tokenizer, role: str) -> int | None:
    """The token that `tokenizer_config.json` names, by a string or a description; None if it names none."""
    named: Any = tokenizer.config.get(role)
    content = named.get("content") if isinstance(named, dict) else named
    return tokenizer.id(content) if isinstance(content, str) else None


def can_infill(network: Network, tokenizer: Tokenizer) -> bool:
    """Whether the model can generate a missing part of a text: gpt, gpt2, and t5 before fine-tuning."""
    return can_generate(network) and not InfillPrompts.of(network, tokenizer).answers


@dataclass(frozen=True, eq=False)
class InfillPrompts:
    """Prompts of one model."""

    tokenizer: Tokenizer
    opening: Ints
    """Tokens at the start of every answer: the sentinel of the blank, or none."""
    ends: frozenset[int]
    """Tokens that end an answer."""
    closed: bool
    """Whether the model also reads what follows the blank."""

    @classmethod
    def of(cls, network: Network, tokenizer: Tokenizer, *, name: str = "the model") -> InfillPrompts:
        """Refused if the model does not generate, and if an encoder–decoder has no sentinels."""
        closed = require_generator(network, name=name).encoder.closes_prompts
        fills = closed and "denoising" in network.objectives
        sentinels = sentinel_ids(tokenizer) if fills else np.empty(0, np.int64)
        if fills and not len(sentinels):
            raise UsageError(f"the vocabulary of {name} has no sentinels <extra_id_0> … to mark a blank with; use a t5")
        return cls(tokenizer, sentinels[:1], end_ids(tokenizer) | frozenset(sentinels.tolist()), closed)

    @property
    def answers(self) -> bool:
        """Whether the model answers whole texts, without a blank in them."""
        return self.closed and not len(self.opening)

    def ids(self, before: Ints, after: Ints | None = None) -> Ints:
        """The tokens that the model reads, including special ones."""
        frame = self.tokenizer.template.single
        if self.closed:
            parts = [before, self.opening] if after is None else [before, self.opening, after]
            return np.asarray(frame.ids(np.concatenate(parts)), np.int64)
        read = np.concatenate([np.array(frame.gaps[0], np.int64), before])
        start = start_id(self.tokenizer)
        if len(read) or start is None:
            return read
        return np.array([start], np.int64)


# Likelihood of continuations.

_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits held at once."""


@torch.inference_mode()
def continuation_scores(
    network: Network, prompts: Sequence[Ints], continuations: Sequence[Ints], *, name: str = "the model"
) -> list[float]:
    """log P(continuation | prompt) of each pair. Prompts are tokens from `prompts.prompt_ids`."""
    scores = np.zeros(len(prompts))
    for batch in _batches(require_generator(network, name=name), network, prompts, continuations):
        each_M = np.concatenate([[0.0], _log_probabilities(batch).cumsum()])
        scores[batch.pairs] = each_M[batch.borders[1:]] - each_M[batch.borders[:-1]]
    return scores.tolist()


@torch.inference_mode()
def greedy_prefix_lengths(
    network: Network, prompts: Sequence[Ints], continuations: Sequence[Ints], *, given: int = 0, name: str = "the model"
) -> Ints:
    """[pairs] number of tokens of each continuation that greedy decoding reproduces, before the first other token.

    The first `given` tokens of a continuation are given to the model (a sentinel, for T5), and not counted.
    """
    counts = np.zeros(len(prompts), np.int64)
    for batch in _batches(require_generator(network, name=name), network, prompts, continuations):
        right_M = np.concatenate([(logits.argmax(-1) == ids).cpu().numpy() for logits, ids in batch.logits()])
        for pair, first, last in zip(batch.pairs, batch.borders[:-1] + given, batch.borders[1:], strict=True):
            wrong = np.flatnonzero(~right_M[first:last])
            counts[pair] = wrong[0] if len(wrong) else last - first
    return counts


@dataclass(frozen=True, eq=False)
class _Batch:
    """Prompts with their continuations, read in one pass."""

    generator: Generator
    pairs: Ints
    """Numbers of the pairs."""
    borders: Ints
    """Start and end of each continuation's tokens."""
    states_MD: Tensor
    ids_M: Tensor

    def logits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits [C, V] and target tokens [C], a chunk of the M × V logits at a time."""
        width = len(self.generator.encoder.word_vectors)
        rows = max(1, _LOGITS.get(self.ids_M.device.type, _LOGITS["cuda"]) // width)
        for z_CD, ids_C in zip(self.states_MD.split(rows), self.ids_M.split(rows), strict=True):
            yield self.generator.head(z_CD).float(), ids_C


def _batches(
    generator: Generator, network: Network, prompts: Sequence[Ints], continuations: Sequence[Ints]
) -> Iterator[_Batch]:
    network.eval()
    before = np.array([len(prompt) for prompt in prompts], np.int64)
    after = np.array([len(continuation) for continuation in continuations], np.int64)
    _check(generator, before, after)
    order = np.argsort(before + after, kind="stable")
    for first, last in runs((before + after)[order], generator.budget):
        chosen = order[first:last]
        after_ids, before_ids = ([texts[n].tolist() for n in chosen] for texts in (continuations, prompts))
        device = generator.encoder.device
        wanted = on_device(TokenBatch.of(after_ids), device)
        states_MD = generator.encoder.continuation_states(on_device(TokenBatch.of(before_ids), device), wanted)
        yield _Batch(generator, chosen, edges(after[chosen]), states_MD, wanted.ids)


def _log_probabilities(batch: _Batch) -> np.ndarray:
    """The log-probability of each token, [M]."""
    parts = [logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0] for logits, ids in batch.logits()]
    return torch.cat(parts).double().cpu().numpy() if parts else np.zeros(0)


def _check(generator: Generator, before: Ints, after: Ints) -> None:
    encoder = generator.encoder
    for number, (prompt, continuation) in enumerate(zip(before.tolist(), after.tolist(), strict=True), start=1):
        if continuation > encoder.max_new_tokens(prompt):
            raise UsageError(
                f"prompt {number} of {prompt:,} tokens and its continuation of {continuation:,} do not fit the model's "
                f"context of {encoder.reach:,} tokens; shorten the prompt"
            )
