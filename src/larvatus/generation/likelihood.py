"""How likely a continuation is after a prompt: log P(continuation | prompt), exact, of all its tokens together.

    log P(y | x) = Σ_t log P(y_t | x, y_<t)

A left-to-right model reads prompt and continuation in one pass; an encoder–decoder reads the prompt in its encoder and
the continuation in its decoder. Nothing is written, so nothing is repeated for each token.
M tokens of the continuations of a batch, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from larvatus.arrays import Ints
from larvatus.batch import TokenBatch, edges, runs
from larvatus.errors import UsageError
from larvatus.generation.generator import Generator, the_generator
from larvatus.network import Network
from larvatus.nn.device import on_device

_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Held at once."""


@torch.inference_mode()
def continuation_scores(
    network: Network, prompts: Sequence[Ints], continuations: Sequence[Ints], *, name: str = "the model"
) -> list[float]:
    """log P(continuation | prompt) of each pair. Prompts are tokens as `prompts.prompt_ids` dresses them."""
    generator = the_generator(network, name=name)
    network.eval()
    before = np.array([len(prompt) for prompt in prompts], np.int64)
    after = np.array([len(continuation) for continuation in continuations], np.int64)
    _check(generator, before, after)
    scores = np.zeros(len(before))
    order = np.argsort(before + after, kind="stable")
    for first, last in runs((before + after)[order], generator.budget):
        chosen = order[first:last]
        asked, given = ([texts[n].tolist() for n in chosen] for texts in (continuations, prompts))
        device = generator.encoder.device
        wanted = on_device(TokenBatch.of(asked), device)
        states_MD = generator.encoder.predicting(on_device(TokenBatch.of(given), device), wanted)
        each_M = np.concatenate([[0.0], _log_probabilities(generator, states_MD, wanted.ids).cumsum()])
        borders = edges(after[chosen])
        scores[chosen] = each_M[borders[1:]] - each_M[borders[:-1]]
    return scores.tolist()


def _log_probabilities(generator: Generator, states_MD: Tensor, ids_M: Tensor) -> np.ndarray:
    """Of each token, [M]; only a chunk of the M × V logits exists at a time."""
    rows = max(1, _LOGITS.get(ids_M.device.type, _LOGITS["cuda"]) // len(generator.encoder.word_vectors))
    parts = [
        generator.head(z_CD).float().log_softmax(-1).gather(-1, ids_C[:, None])[:, 0]
        for z_CD, ids_C in zip(states_MD.split(rows), ids_M.split(rows), strict=True)
    ]
    return torch.cat(parts).double().cpu().numpy() if parts else np.zeros(0)


def _check(generator: Generator, before: Ints, after: Ints) -> None:
    encoder = generator.encoder
    for number, (prompt, continuation) in enumerate(zip(before.tolist(), after.tolist(), strict=True), start=1):
        if continuation > encoder.room_after(prompt):
            raise UsageError(
                f"prompt {number} of {prompt:,} tokens and its continuation of {continuation:,} do not fit the model's "
                f"context of {encoder.reach:,} tokens; shorten the prompt"
            )
