"""Training of probes, those of G layers at a time: multinomial logistic regression, and networks by Adam.

Logistic regression has one optimum, so nothing is tuned: of N examples with features x (a 1 at their end),

    L(W) = −1/N Σ_i log softmax(W x_i)[y_i] + α/2 ‖W‖²               the bias is not penalised

is minimised by majorisation: ½ XᵀX/N + αI is above the Hessian (Böhning 1992), so W − (½ XᵀX/N + αI)⁻¹ ∇L never
overshoots; Nesterov's momentum, restarted where it turns against the gradient, makes it fast. In scikit-learn it is
`LogisticRegression(C=1 / (α N))`.

    W = fit_linear(x_GNF, y_N, classes)                                   # [G, F, C]
    weights = fit_mlp(x_GNF, y_N, classes, split=(train, validation), hidden=64, seed=0)

A network has a copy for each layer, trained on the same minibatches; each keeps the epoch with the lowest validation
loss. A mix (Tenney et al. 2019, *BERT rediscovers the classical NLP pipeline*) reads Σ_l s_l x_l with s = softmax(a).
Group g of the G mixes has the first g + 1 layers, so all of the paper's cumulative probes are trained together.

G layers, N examples, F features with the bias, C classes, H hidden units, B examples of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from larvatus.core.arrays import Ints
from larvatus.core.rng import derive, stream

RIDGE = 0.01
"""α. On parts of speech, 0.003 to 0.03 gave accuracies within half a point (a development figure)."""
STEPS = 300
TOLERANCE = 3e-3
"""Largest change of a weight at which the steps end; features have deviation 1."""
EPOCHS, PATIENCE, BATCH, RATE = 30, 3, 512, 2e-3
FEWEST_STEPS = 240
"""Steps of a network on few examples: epochs are repeated up to it."""
Loss = Callable[[Sequence[Tensor], Ints], Tensor]
"""Loss of each group, [G], of some examples."""


@torch.no_grad()
def fit_linear(
    x_GNF: Tensor, y_N: Tensor, classes: int, *, ridge: float = RIDGE, tolerance: float = TOLERANCE
) -> Tensor:
    """Weights [G, F, C] of the optimum; the last feature is the bias."""
    groups, count, size = x_GNF.shape
    gold_NC = F.one_hot(y_N, classes).to(x_GNF.dtype)
    penalty_F1 = torch.full((size, 1), ridge, dtype=x_GNF.dtype)
    penalty_F1[-1] = 0
    x_GFN = x_GNF.transpose(1, 2)
    bound_GFF = x_GFN @ x_GNF * (0.5 / count)
    bound_GFF.diagonal(dim1=1, dim2=2).add_(penalty_F1[:, 0] + 1e-5)
    factor_GFF = torch.linalg.cholesky(bound_GFF)
    w = ahead = x_GNF.new_zeros(groups, size, classes)
    pace_G11, moving_G11 = x_GNF.new_ones(groups, 1, 1), torch.ones(groups, 1, 1, dtype=torch.bool)
    for _ in range(STEPS):
        gradient = x_GFN @ (torch.softmax(x_GNF @ ahead, -1) - gold_NC) / count + penalty_F1 * ahead
        step = torch.cholesky_solve(gradient, factor_GFF)
        next_w = ahead - step
        back_G11 = (gradient * (next_w - w)).sum((1, 2), keepdim=True) > 0
        pace_G11 = torch.where(back_G11, 1.0, pace_G11)
        next_pace_G11 = (1 + torch.sqrt(1 + 4 * pace_G11**2)) / 2
        ahead = next_w + torch.where(back_G11, 0.0, (pace_G11 - 1) / next_pace_G11) * (next_w - w)
        w, pace_G11 = torch.where(moving_G11, next_w, w), next_pace_G11
        moving_G11 = moving_G11 & (step.abs().amax((1, 2), keepdim=True) >= tolerance)
        ahead = torch.where(moving_G11, ahead, w)  # a layer that has arrived waits, so that none depends on the others
        if not moving_G11.any():
            break
    return w


def log_probabilities(x_GNF: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """[G, N, C] of a linear probe (one matrix) or an MLP (two)."""
    for w in weights[:-1]:
        hidden = torch.relu(x_GNF @ w)
        x_GNF = torch.cat([hidden, hidden.new_ones(*hidden.shape[:2], 1)], -1)
    return torch.log_softmax(x_GNF @ weights[-1], -1)


def minimise(
    loss: Loss, start: Sequence[Tensor], split: tuple[Ints, Ints], *, seed: int, batch: int = BATCH, rate: float = RATE
) -> list[Tensor]:
    """Adam on the training examples; each group keeps its best epoch by validation loss.

    Args:
        loss: Mean loss of each group over examples, given by number.
        start: Initial weights, [G, …] each.
        split: Numbers of the training and of the validation examples.
        seed: Seed of the order of examples.
        batch: Examples of a step.
        rate: Learning rate.
    """
    train, validation = split
    weights = [w.clone().requires_grad_() for w in start]
    optimizer = torch.optim.Adam(weights, lr=rate, fused=True)
    best = [w.detach().clone() for w in weights]
    lowest_G = torch.full((len(start[0]),), torch.inf)
    repeats = max(1, FEWEST_STEPS // (EPOCHS * -(-len(train) // batch)))
    stale_G = torch.zeros(len(lowest_G), dtype=torch.int64)
    for epoch in range(EPOCHS):
        passes = [stream(seed, "probe order", epoch, n).permutation(train) for n in range(repeats)]
        for chosen in (each[first : first + batch] for each in passes for first in range(0, len(train), batch)):
            optimizer.zero_grad(set_to_none=True)
            loss(weights, chosen).sum().backward()
            optimizer.step()
        with torch.no_grad():
            # a group that has stopped stays as it is, so that no layer depends on the others
            better_G = ((now_G := _mean_loss(loss, weights, validation)) < lowest_G) & (stale_G < PATIENCE)
            lowest_G = torch.where(better_G, now_G, lowest_G)
            for kept, w in zip(best, weights, strict=True):
                kept[better_G] = w[better_G]
            stale_G = torch.where(better_G, 0, stale_G + 1)
        if (stale_G >= PATIENCE).all():
            break
    return best


def _mean_loss(loss: Loss, weights: Sequence[Tensor], examples: Ints, at_once: int = 1024) -> Tensor:
    parts = [examples[first : first + at_once] for first in range(0, len(examples), at_once)]
    return sum((loss(weights, part) * len(part) for part in parts), torch.zeros(())) / len(examples)


def initial(shape: Sequence[int], deviation: float, seed: int, purpose: str) -> Tensor:
    """Normal weights, the same for every group."""
    generator = torch.Generator().manual_seed(derive(seed, f"probe {purpose}"))
    weights = torch.empty(*shape[1:]).normal_(0, deviation, generator=generator)
    return weights.expand(*shape).clone()


def fit_mlp(
    x_GNF: Tensor, y_N: Tensor, classes: int, *, split: tuple[Ints, Ints], hidden: int, seed: int
) -> list[Tensor]:
    """Weights [G, F, H] and [G, H + 1, C] of one hidden layer with ReLU."""
    groups, _, size = x_GNF.shape
    start = [
        initial((groups, size, hidden), (2 / size) ** 0.5, seed, "hidden layer"),
        torch.zeros(groups, hidden + 1, classes),
    ]

    def loss(weights: Sequence[Tensor], chosen: Ints) -> Tensor:
        at = torch.from_numpy(chosen)
        return cross_entropy(log_probabilities(x_GNF[:, at], weights), y_N[at])

    return minimise(loss, start, split, seed=seed)


def fit_mix(
    features: Callable[[Ints], Tensor], y_N: Tensor, shape: tuple[int, int, int], *, split: tuple[Ints, Ints], seed: int
) -> tuple[Tensor, Tensor]:
    """Linear probes of mixes of layers: mixing weights s [G, G], zero above the diagonal, and W [G, F, C].

    `features` gives [G, B, F] of examples; `shape` is G, F and C.
    """
    groups, size, classes = shape
    above_GG = torch.ones(groups, groups, dtype=torch.bool).triu(1)
    start = [torch.zeros(groups, groups), torch.zeros(groups, size, classes)]

    def mixing(a_GG: Tensor) -> Tensor:  # ten times the learning rate of W, since few steps have to move them
        return torch.softmax((a_GG * 10).masked_fill(above_GG, -torch.inf), -1)

    def loss(weights: Sequence[Tensor], chosen: Ints) -> Tensor:
        return cross_entropy(mixed_logits(features(chosen), mixing(weights[0]), weights[1]), y_N[chosen])

    a_GG, w_GFC = minimise(loss, start, split, seed=seed)
    return mixing(a_GG), w_GFC


def mixed_logits(x_GBF: Tensor, mixing_GG: Tensor, w_GFC: Tensor) -> Tensor:
    """log p [G, B, C] of mixes of layers."""
    mixed = (mixing_GG @ x_GBF.flatten(1)).view_as(x_GBF)
    return torch.log_softmax(mixed @ w_GFC, -1)


def cross_entropy(log_p_GNC: Tensor, y_N: Tensor) -> Tensor:
    """Mean over examples, [G]."""
    return -log_p_GNC[:, torch.arange(len(y_N)), y_N].mean(1)


def online_parts(sizes: Ints, seed: int) -> list[Ints]:
    """Items of the parts of an online code, in random order: 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50, 100%.

    `sizes` counts the examples of each item (a sentence). Each share is reached by whole items.
    """
    order = stream(seed, "probe online code").permutation(len(sizes))
    reached = np.cumsum(sizes[order])
    shares = np.array([0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0])
    ends = np.unique(np.searchsorted(reached, shares * reached[-1] - 0.5) + 1)
    return [order[first:last] for first, last in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
