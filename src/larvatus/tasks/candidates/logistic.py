"""Multinomial logistic regression with an L2 penalty, fitted to convergence: the linear head of small data.

    minimise  C Σ_n −log softmax(W x_n + b)[y_n]  +  ½ ‖W‖²

This is scikit-learn's `LogisticRegression(C=C)` for several classes; the bias has no penalty. A problem of a thousand
examples is convex and small, so L-BFGS over all of them replaces the steps, epochs and rate of the trainer.
N examples, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import Doubles, Floats, Ints

STEPS, TOLERANCE = 200, 1e-5
"""Most steps of L-BFGS, and the largest gradient at which it ends."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    weight: Doubles
    """[K, D]"""
    bias: Doubles
    """[K]"""

    def logits(self, x_ND: Floats | Doubles) -> Doubles:
        return np.asarray(x_ND @ self.weight.T + self.bias, np.float64)


def fit_logistic(x_ND: Floats | Doubles, y_N: Ints, *, classes: int, penalties: Sequence[float]) -> list[LinearFit]:
    """The weights for each penalty C, in rising order: each fit begins at the one before."""
    x, y = torch.tensor(x_ND, dtype=torch.float64), torch.as_tensor(y_N)
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    return [_minimised(x, y, weight, bias, penalty) for penalty in penalties]


def _minimised(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, penalty: float) -> LinearFit:
    """Minimise in place."""
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=STEPS, tolerance_grad=TOLERANCE, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = F.cross_entropy(x @ weight.T + bias, y) + weight.square().sum() / (2 * penalty * len(x))
        total.backward()
        return total

    optimizer.step(loss)
    return LinearFit(weight.detach().numpy().copy(), bias.detach().numpy().copy())


@dataclass(frozen=True, eq=False)
class Scale:
    """Centre of features, and the one number that gives them a mean square length of 1."""

    centre: Doubles
    length: float

    @classmethod
    def of(cls, x_ND: Floats | Doubles) -> Scale:
        x = np.asarray(x_ND, np.float64)
        centre = x.mean(0)
        return cls(centre, max(1e-12, float(np.sqrt(((x - centre) ** 2).sum(1).mean()))))

    def __call__(self, x_ND: Floats | Doubles) -> Doubles:
        return (np.asarray(x_ND, np.float64) - self.centre) / self.length

    def undone(self, fit: LinearFit) -> LinearFit:
        """The same predictions from features that are not scaled."""
        weight = fit.weight / self.length
        return LinearFit(weight, fit.bias - weight @ self.centre)


def fit_scaled(x_ND: Floats | Doubles, y_N: Ints, *, classes: int, penalties: Sequence[float]) -> list[LinearFit]:
    """Fits on features of mean square length 1, so that a penalty weighs the same for all models."""
    scale = Scale.of(x_ND)
    return [scale.undone(fit) for fit in fit_logistic(scale(x_ND), y_N, classes=classes, penalties=penalties)]
