"""Continuing with a text without reading it again: logits with kept keys and values are those of reading all again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.models.nn.causal_transformer import (
    CausalGenerationState,
    CausalTransformer,
    CausalTransformerConfig,
    continuation_states,
)
from larvatus.models.nn.initialise import initialise

PROMPTS = [[5, 9, 11, 2], [7], [12, 4, 4, 8, 20, 1, 3], [2, 2, 6, 6], [1]]


@pytest.fixture(params=["post", "pre"])
def stack(request: pytest.FixtureRequest) -> CausalTransformer:
    config = CausalTransformerConfig(layers=3, hidden=16, heads=2, max_positions=128, norm=request.param, init=0.3)
    stack = config.build(vocabulary=24)
    initialise(stack, seed=2, std=config.init)
    return stack.eval()


def batch(sequences: list[list[int]]) -> TokenBatch[Tensor]:
    tokens: TokenBatch[Tensor] = TokenBatch.of(sequences).map(torch.from_numpy)
    return tokens


def head(stack: CausalTransformer) -> Any:
    return lambda z: z @ stack.word_vectors.T


def again(stack: CausalTransformer, sequences: list[list[int]]) -> Tensor:
    """The logits after the last token of each sequence, each read by itself."""
    return torch.stack([head(stack)(stack(batch([ids])))[-1] for ids in sequences])


@torch.inference_mode()
def test_logits_with_the_cache_are_those_of_a_full_pass(stack: CausalTransformer) -> None:
    """Also where sequences leave, are repeated and change places, in groups of several lengths."""
    under_way = CausalGenerationState(stack, batch(PROMPTS), max_new=12, head=head(stack))
    sequences = [list(prompt) for prompt in PROMPTS]
    draw = torch.Generator().manual_seed(1)
    for rows in (None, [4, 0, 1, 2, 3, 0], None, [5, 5, 0, 3], [0, 1, 2, 3], None, [2], None):
        torch.testing.assert_close(under_way.logits(), again(stack, sequences), atol=1e-5, rtol=1e-5)
        if rows is not None:
            under_way.take(torch.tensor(rows))
            sequences = [list(sequences[row]) for row in rows]
            torch.testing.assert_close(under_way.logits(), again(stack, sequences), atol=1e-5, rtol=1e-5)
        ids = torch.randint(24, (len(sequences),), generator=draw)
        under_way.extend(ids)
        for sequence, token in zip(sequences, ids.tolist(), strict=True):
            sequence.append(token)


@torch.inference_mode()
def test_a_step_computes_the_new_tokens_alone(stack: CausalTransformer) -> None:
    computed = []
    stack.blocks[0].attention.qkv.register_forward_hook(lambda module, args, out: computed.append(len(args[0])))
    under_way = CausalGenerationState(stack, batch(PROMPTS), max_new=100, head=head(stack))
    for _ in range(100):
        under_way.extend(under_way.logits().argmax(-1))
    prompts, count = sum(map(len, PROMPTS)), len(PROMPTS)
    assert sum(computed) == prompts + 100 * count
    reading_anew = sum(prompts + step * count for step in range(101))
    assert sum(computed) * 40 < reading_anew


@torch.inference_mode()
def test_the_states_that_predict_a_continuation_come_from_one_pass(stack: CausalTransformer) -> None:
    continuations = [[3, 4], [8], [1, 2, 3], [], [9, 9, 9, 9]]
    states = continuation_states(stack, batch(PROMPTS), batch(continuations))
    expected = [
        stack(batch([prompt + continuation]))[len(prompt) - 1 : -1]
        for prompt, continuation in zip(PROMPTS, continuations, strict=True)
    ]
    torch.testing.assert_close(states, torch.cat(expected), atol=1e-5, rtol=1e-5)
