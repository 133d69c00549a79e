"""Activation checkpointing changes no bit of a loss or a gradient, dropout included, and keeps less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.data.text.vocabularies.characters import BEGIN, BYTES, END, INSIDE
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.elmo import ElmoConfig
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.encoder_base import set_activation_checkpointing
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig, EncoderOutput
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig

SHAPE: dict[str, Any] = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 32}
MODERN: dict[str, Any] = {"norm": "pre", "positions": "rotary", "gated": True, "local_attention": 4, "global_every": 2}
BATCH = TokenBatch.of([list(range(5, 5 + n)) for n in (9, 4, 9, 12, 1)]).map(torch.from_numpy)


def last_layer(encoder: Encoder) -> Tensor:
    states = encoder(BATCH)
    assert isinstance(states, Tensor)
    return states


def all_layers(encoder: Encoder) -> Tensor:
    return torch.stack(encoder(BATCH, layers=range(encoder.depth + 1)))


def both_streams(encoder: Any) -> Tensor:
    order_N = torch.randperm(BATCH.size, generator=torch.Generator().manual_seed(3))
    return encoder.in_training(BATCH, order_N, torch.arange(1, BATCH.size, 3))


def both_sides(encoder: Any) -> Tensor:
    return encoder.decode(BATCH.ids, BATCH.lengths, EncoderOutput(encoder(BATCH), BATCH.lengths))


def words_both_ways(encoder: Any) -> Tensor:
    rows = [[BEGIN, BYTES + 65, INSIDE + 66, BYTES + 67, BYTES + 65, END], [BEGIN, BYTES + 68, END]]
    return encoder(TokenBatch.of(rows).map(torch.from_numpy))


CASES: dict[str, tuple[Any, Callable[[Any], Tensor]]] = {
    "bert": (TransformerConfig(**SHAPE), last_layer),
    "modern": (TransformerConfig(**SHAPE, **MODERN), all_layers),
    "albert": (TransformerConfig(**SHAPE, shared=True), last_layer),
    "mpnet": (TransformerConfig(**SHAPE, relative_buckets=8), last_layer),
    "gpt": (CausalTransformerConfig(**SHAPE), last_layer),
    "xlnet": (XLNetConfig(**SHAPE), both_streams),
    "xlnet, content": (XLNetConfig(**SHAPE), last_layer),
    "t5": (EncoderDecoderConfig(layers=3, hidden=16, heads=2), both_sides),
    "elmo": (ElmoConfig(layers=2, hidden=8, cells=12, symbol=3, filters=(2, 3), highways=1), words_both_ways),
}


def learnt(encoder: Any, read: Callable[[Any], Tensor], *, recomputes: bool) -> tuple[Tensor, list[Tensor], int]:
    """What it reads, the gradient of each parameter, and bytes kept for the backward pass."""
    set_activation_checkpointing(encoder, recomputes)
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    encoder.zero_grad()
    torch.manual_seed(7)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        states = read(encoder)
        states.square().sum().backward()
    gradients = [torch.zeros(()) if p.grad is None else p.grad.clone() for p in encoder.parameters()]
    return states.detach(), gradients, sum(kept.values())


@pytest.mark.parametrize("name", CASES)
def test_layers_computed_again_give_the_same_bits_and_keep_less(name: str) -> None:
    config, read = CASES[name]
    encoder = config.build(40)
    initialise(encoder, seed=1, std=0.3)
    encoder.train()
    states, gradients, kept = learnt(encoder, read, recomputes=False)
    again, again_gradients, again_kept = learnt(encoder, read, recomputes=True)
    other, _, _ = learnt(encoder.eval(), read, recomputes=True)
    assert torch.equal(states, again)
    assert any(float(gradient.abs().max()) for gradient in gradients)
    for (parameter, _), before, after in zip(encoder.named_parameters(), gradients, again_gradients, strict=True):
        assert torch.equal(before, after), parameter
    assert again_kept < 0.8 * kept
    assert not torch.equal(other, states)  # dropout was on


def test_what_learns_nothing_is_computed_once() -> None:
    encoder = TransformerConfig(**SHAPE).build(40).eval()
    initialise(encoder, seed=1, std=0.3)
    set_activation_checkpointing(encoder, True)
    calls = []
    handle = encoder.blocks[0].register_forward_hook(lambda *given: calls.append(1))
    with torch.no_grad():
        encoder(BATCH)
    assert len(calls) == 1
    handle.remove()
