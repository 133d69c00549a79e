"""What can be held without a GPU of the fused feedforward layer: whom it serves, what a compiler is told, its Φ.

The kernels run in Triton's interpreter (`test_kernels.py`), and on a GPU (`benchmarks/feedforward_check.py`).
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from larvatus.models.nn import feedforward
from larvatus.models.nn.feedforward import FeedForward, feed_fused, supports_fused_feedforward


class Hopper:
    major = 9


class Meta(torch.Tensor):
    """A tensor without numbers that says it lies on a GPU."""

    device = torch.device("cuda")


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(feedforward, "TRITON", True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Hopper())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)


def test_it_serves_two_plain_layers_that_learn(hopper) -> None:
    x = torch.empty(3, 8, device="meta").as_subclass(Meta)
    up, down = nn.Linear(8, 16), nn.Linear(16, 8)
    assert supports_fused_feedforward(x, up, down)
    assert not supports_fused_feedforward(torch.empty(3, 8), up, down)  # on the CPU
    assert not supports_fused_feedforward(x, nn.Linear(8, 16, bias=False), down)
    assert not supports_fused_feedforward(x, up, nn.Linear(16, 8).requires_grad_(False))
    with torch.no_grad():
        assert not supports_fused_feedforward(x, up, down)


def test_on_a_cpu_nothing_changes() -> None:
    layer = FeedForward(hidden=8, inner=16, activation="gelu")
    x = torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), layer.down(torch.nn.functional.gelu(layer.up(x))))


def test_a_compiler_is_told_the_right_shapes(monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    up, down = nn.Linear(8, 16, device="meta"), nn.Linear(16, 8, device="meta")
    x = torch.empty(5, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    y = feed_fused(x, up, down)
    assert (y.shape, y.dtype) == ((5, 8), torch.bfloat16)
    leaves = [x, *up.parameters(), *down.parameters()]
    for leaf, gradient in zip(leaves, torch.autograd.grad(y, leaves, torch.empty_like(y)), strict=True):
        assert (gradient.shape, gradient.dtype) == (leaf.shape, leaf.dtype)


def test_the_formula_of_the_kernels_is_the_normal_distribution() -> None:
    """As `feedforward_kernels._normal` writes it, against the error function in float64."""
    z = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    t = 1.0 / (1.0 + 0.23164190 * z.abs())
    power = torch.exp2(-0.72134752 * z * z)
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.71070687 + t * (-0.726576014 + t * 0.530702715)))) * power
    share = torch.where(z >= 0.0, 1.0 - tail, tail)
    assert (share - torch.special.ndtr(z)).abs().max() < 1e-7
    assert (power - torch.exp(-z * z / 2)).abs().max() < 1e-7
    assert abs(0.39894228 - 1 / math.sqrt(2 * math.pi)) < 1e-8
