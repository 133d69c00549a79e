"""Rotary positions against the definition, number by number, and the property they are made for."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.rng import stream
from larvatus.models.nn.positions import rotate, rotation

SIZE, BASE = 6, 100.0


def normal(*shape: int, item: int = 0) -> Tensor:
    return torch.from_numpy(stream(3, "test rotary", 0, item).normal(size=shape))


def rotate_loop(x: list[float], place: int) -> list[float]:
    """The two equations of the module, on Python floats."""
    half = len(x) // 2
    out = [0.0] * len(x)
    for j in range(half):
        angle = place * BASE ** (-2 * j / len(x))
        out[j] = x[j] * math.cos(angle) - x[j + half] * math.sin(angle)
        out[j + half] = x[j + half] * math.cos(angle) + x[j] * math.sin(angle)
    return out


def test_queries_and_keys_turn_as_the_equations_say_and_values_stay() -> None:
    places = [0, 1, 2, 3, 0, 1, 700]  # of two sequences and a far token
    qkv = normal(len(places), 3, 2, SIZE)
    turned = rotate(qkv, rotation(torch.tensor(places), size=SIZE, base=BASE, dtype=torch.float64))
    for n, place in enumerate(places):
        for part in range(2):
            for head in range(2):
                loop = rotate_loop(qkv[n, part, head].tolist(), place)
                assert_close(turned[n, part, head].tolist(), loop, rtol=1e-12, atol=1e-12)
    assert torch.equal(turned[:, 2], qkv[:, 2])
    assert torch.equal(turned[0], qkv[0])  # place 0 is not turned


def test_scores_depend_on_the_distance_alone() -> None:
    qkv = normal(1, 3, 1, SIZE).expand(2, -1, -1, -1)
    scores = []
    for first in (0, 5, 40):
        places = torch.tensor([first, first + 7])
        turned = rotate(qkv, rotation(places, size=SIZE, base=BASE, dtype=torch.float64))
        scores.append(float(turned[0, 0, 0] @ turned[1, 1, 0]))
    np.testing.assert_allclose(scores, scores[0], rtol=1e-12)
    assert abs(scores[0] - float(qkv[0, 0, 0] @ qkv[0, 1, 0])) > 1e-3  # and on the distance it does depend


def test_half_precision_is_turned_in_single_and_given_back_in_half() -> None:
    qkv, places = normal(4, 3, 1, 8).float(), torch.tensor([0, 10, 200, 511])
    half = rotate(qkv.bfloat16(), rotation(places, size=8, base=1e4, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16
    exact = rotate(qkv.bfloat16().double(), rotation(places, size=8, base=1e4, dtype=torch.float64))
    assert_close(half.double(), exact, rtol=2**-8, atol=1e-3)  # the last rounding, and no other


def test_the_gradient_of_a_turn_is_that_of_its_parts():
    generator = torch.Generator().manual_seed(3)
    qkv = torch.randn(7, 3, 2, SIZE, dtype=torch.float64, generator=generator, requires_grad=True)
    given = torch.randn(7, 3, 2, SIZE, dtype=torch.float64, generator=generator)
    by = rotation(torch.arange(7), size=SIZE, base=BASE, dtype=torch.float64)
    (ours,) = torch.autograd.grad(rotate(qkv, by), qkv, given)

    q, v = qkv[:, :2], qkv[:, 2:]
    first, second = q[..., : SIZE // 2], q[..., SIZE // 2 :]
    turned = torch.cat([first * by.cos - second * by.sin, second * by.cos + first * by.sin], dim=-1)
    (parts,) = torch.autograd.grad(torch.cat([turned, v], dim=1), qkv, given)
    assert torch.allclose(ours, parts, atol=1e-14)
    assert torch.equal(rotate(qkv.detach(), by), rotate(qkv, by).detach())
