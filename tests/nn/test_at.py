"""Vectors of one token of each sequence: those of the whole last layer, without computing it."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from larvatus.batch import TokenBatch, edges
from larvatus.nn.initialise import initialise
from larvatus.nn.transformer import Transformer, TransformerConfig

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


def test_dropout_in_training_is_that_of_the_whole_layer() -> None:
    encoder = Transformer(TransformerConfig(layers=1, hidden=8, heads=2, dropout=0.5), vocabulary=9).train()
    batch = TokenBatch.of([[1, 2, 3], [4, 5, 6]]).map(torch.from_numpy)
    found = []
    for compute in (lambda: encoder.at(batch, torch.tensor([1, 3])), lambda: encoder(batch)[[1, 3]]):
        torch.manual_seed(5)
        found.append(compute())
    assert_close(found[0], found[1])
