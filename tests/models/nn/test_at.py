"""Vectors of one token of each sequence: those of the whole last layer, without computing it."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, edges
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.transformer import Transformer, TransformerConfig

SHAPES = {
    "bert": {},
    "one layer": {"layers": 1},
    "shared": {"shared": True, "embedding": 4},
    "pre-norm": {"norm": "pre"},
    "no biases": {"norm": "pre", "biases": False, "gated": True},
    "rotary": {"norm": "pre", "positions": "rotary"},
    "local": {"norm": "pre", "positions": "rotary", "local_attention": 4, "global_every": 2, "layers": 2},
    "relative": {"relative_buckets": 8, "relative_distance": 16},
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("lengths", [[7, 2, 7, 5, 1], [3, 3, 3], [4], [2, 5, 9]])
def test_one_token_of_each_sequence_has_the_vector_it_has_among_all(name: str, lengths: list[int]) -> None:
    shape = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 16, **SHAPES[name]}
    encoder = Transformer(TransformerConfig(**shape), vocabulary=30).double().eval()  # type: ignore[arg-type]
    initialise(encoder, seed=3, std=0.3)
    batch = TokenBatch.of([[(7 * row + place) % 30 for place in range(size)] for row, size in enumerate(lengths)])
    at = edges(batch.lengths)[:-1] + [size // 2 for size in lengths]
    tensors, places = batch.map(torch.from_numpy), torch.from_numpy(at)
    with torch.inference_mode():
        assert_close(encoder.at(tensors, places), encoder(tensors)[places])


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_in_training_are_those_of_the_whole_layer(name: str) -> None:
    shape = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 16, "dropout": 0.0, "attention_dropout": 0.0}
    encoder = Transformer(TransformerConfig(**{**shape, **SHAPES[name]}), vocabulary=30).double().train()  # type: ignore[arg-type]
    initialise(encoder, seed=3, std=0.3)
    batch = TokenBatch.of([[1, 2, 3, 4], [4, 5], [6, 7, 8, 9]]).map(torch.from_numpy)
    places = torch.tensor([0, 4, 6])
    factor = torch.randn(3, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = []
    for compute in (lambda: encoder.at(batch, places), lambda: encoder(batch)[places]):
        encoder.zero_grad()
        (compute() * factor).sum().backward()
        gradients.append([p.grad for p in encoder.parameters()])
    assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_in_training(settings: dict[str, float]) -> None:
    """It is drawn, from torch's generator, and on average changes nothing that comes before the first norm."""
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "norm": "pre"}
    encoder = Transformer(TransformerConfig(**{**sizes, **settings}), vocabulary=9).train()  # type: ignore[arg-type]
    batch = TokenBatch.of([[1, 2, 3], [4, 5, 6]]).map(torch.from_numpy)
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        found.append(encoder.at(batch, torch.tensor([0, 3])))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    attention = encoder.blocks[0].attention
    x_ND, layout = torch.randn(6, 8), encoder.layout(batch.lengths)
    many = torch.stack([attention.at(x_ND, layout, torch.tensor([0, 3])) for _ in range(4000)])
    encoder.eval()
    assert_close(many.mean(0), attention(x_ND, layout)[[0, 3]], rtol=0, atol=0.02)
