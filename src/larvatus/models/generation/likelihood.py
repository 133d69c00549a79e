"""The likelihood of a continuation after a prompt: log P(continuation | prompt), exact, over all its tokens.

    log P(y | x) = Σ_t log P(y_t | x, y_<t)

A left-to-right model reads prompt and continuation in one pass; an encoder–decoder reads the prompt in its encoder and
the continuation in its decoder. Nothing is generated, so nothing is repeated for each token. The same pass gives the
number of tokens that greedy decoding would reproduce: up to the first token that is not the likeliest one. M tokens of
the continuations of a batch, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.core.errors import UsageError
from larvatus.models.generation.generator import Generator, require_generator
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device

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
