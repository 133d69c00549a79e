"""ELMo's mix of layers: equation 1 of Peters et al. 2018, written out."""

from __future__ import annotations

import math

import torch
from torch.testing import assert_close

from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.layer_mix import LayerMix

STATES = torch.randn(4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def mix(scores: list[float], scale: float) -> LayerMix:
    made = LayerMix(layers=3).double()
    made.scores.data = torch.tensor(scores, dtype=torch.float64)
    made.scale.data = torch.tensor(scale, dtype=torch.float64)
    return made


def test_equals_the_sum_written_out() -> None:
    scores, scale = [0.3, -1.0, 2.0, 0.5], 1.7
    total = sum(math.exp(score) for score in scores)
    found = mix(scores, scale)(STATES)
    for n in range(5):
        for d in range(6):
            expected = scale * sum(math.exp(s) / total * float(STATES[layer, n, d]) for layer, s in enumerate(scores))
            assert math.isclose(float(found[n, d].detach()), expected, rel_tol=1e-12)


def test_starts_as_the_mean_of_all_layers() -> None:
    made = LayerMix(layers=3)
    made.scores.data.fill_(9.0)
    initialise(made, seed=1)
    assert_close(made.double()(STATES), STATES.mean(0))


def test_one_layer_far_ahead_is_that_layer() -> None:
    assert_close(mix([0.0, 0.0, 50.0, 0.0], 1.0)(STATES), STATES[2])


def test_gradients() -> None:
    made = mix([0.3, -1.0, 2.0, 0.5], 1.7)

    def loss(scores: torch.Tensor, scale: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(made, {"scores": scores, "scale": scale}, (states,))

    inputs = (made.scores, made.scale, STATES.clone().requires_grad_(True))
    assert torch.autograd.gradcheck(loss, inputs)
