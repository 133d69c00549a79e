"""The sampled softmax against the exact one, over many draws of a fixed seed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from larvatus.models.nn.compiling import IGNORE
from larvatus.models.objectives.word_lm import log_normalisers, log_uniform, sampled_cross_entropy

V, P, HEAD = 300, 6, 20


@pytest.fixture
def layer():
    draw = torch.Generator().manual_seed(1)
    h = torch.randn(5, P, generator=draw, dtype=torch.float64, requires_grad=True)
    w = (torch.randn(V, P, generator=draw, dtype=torch.float64) * 0.5).requires_grad_()
    b = torch.randn(V, generator=draw, dtype=torch.float64, requires_grad=True)
    return h, w, b, torch.tensor([0, HEAD - 1, HEAD, 57, V - 1])  # in the head, and beyond it


def test_draws_fall_with_the_rank_as_they_should():
    torch.manual_seed(0)
    drawn = torch.bincount(log_uniform(400_000, 50, torch.device("cpu")), minlength=50) / 400_000
    ranks = torch.arange(50, dtype=torch.float64)
    wanted = ((ranks + 2) / (ranks + 1)).log() / torch.tensor(51.0, dtype=torch.float64).log()
    assert float(wanted.sum()) == pytest.approx(1)
    assert (drawn - wanted).abs().max() < 5 * (wanted.max() / 400_000).sqrt()


def test_the_estimate_of_the_normaliser_has_the_exact_one_as_its_mean(layer):
    h, w, b, ids = layer
    exact = torch.logsumexp(F.linear(h, w, b), -1).exp().detach()
    torch.manual_seed(0)
    draws = [log_normalisers(h, w, b, ids, head=HEAD, samples=128)[1].exp().detach() for _ in range(2_000)]
    estimates = torch.stack(draws)
    error = estimates.std(0) / len(draws) ** 0.5
    assert ((estimates.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.02 * exact).all()  # a bias of more than a tenth would be seen


def test_with_many_samples_loss_and_gradients_are_the_exact_ones(layer):
    h, w, b, ids = layer
    labels = ids.clone()
    labels[1] = IGNORE
    exact = F.cross_entropy(F.linear(h, w, b), labels, reduction="sum", ignore_index=IGNORE)
    wanted = torch.autograd.grad(exact, (h, w, b))
    torch.manual_seed(0)
    sampled = sampled_cross_entropy(h, w, b, labels, head=HEAD, samples=200_000)
    assert sampled.item() == pytest.approx(exact.item(), rel=5e-3)
    for gradient, right in zip(torch.autograd.grad(sampled, (h, w, b)), wanted, strict=True):
        torch.testing.assert_close(gradient, right, rtol=0.05, atol=0.02)
