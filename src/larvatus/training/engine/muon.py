"""Muon (Jordan et al. 2024): momentum whose step in each hidden matrix is made orthogonal; AdamW for all the rest.

    M ← μ M + (1 − μ) G        N = μ M + (1 − μ) G (Nesterov)        W ← W − η (√max(1, rows / columns) · O(N) + λ W)

O(N) approximates U Vᵀ, where N = U S Vᵀ: all directions of a matrix move alike, also those whose gradients are small
compared with the largest. It is not computed by a singular value decomposition but by five steps of a Newton–Schulz
iteration whose coefficients were chosen for speed: singular values end between 0.7 and 1.2, which does no harm.

    X ← N / ‖N‖        5 ×: A = X Xᵀ, X ← a X + (b A + c A²) X        (a, b, c) = (3.4445, −4.7750, 2.0315)

Steps are scaled as its authors do, by √max(1, rows / columns), so that their rates and those of `torch.optim.Muon`
mean the same here. (Moonlight's 0.2 √max(rows, columns), Liu et al. 2025, is another unit for the rate: 0.02 here is
0.0051 there at a width of 384.) Where a parameter holds several matrices, one above the other (W^Q, W^K and W^V; both
halves of a gated layer), each is made orthogonal by itself. Matrices of one shape go through the iteration as one
batch: in bfloat16 on CUDA, as published, and in the precision of the weights elsewhere.

Groups without `muon` (embeddings, heads, norms, biases) take the steps of AdamW, those of LAMB without its
ratio. Weights that are sharded over ranks are stepped part by part, but for the iteration: every rank makes it of
whole matrices, a few at a time. Where `found_inf` is set to 1, a step changes nothing at all, as there. Nothing here
waits for a GPU.
S matrices of R × C numbers in a batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from larvatus.training.engine.adam_variants import Lamb, group_alike
from larvatus.training.engine.parallel import full_tensor, is_sharded, local_part, local_tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SMALLEST_NORM = 1e-7
"""A matrix whose norm is below it is no longer brought to a norm of 1: without a gradient there is no direction."""
MOMENTUM = "momentum_buffer"


class Matrix(NamedTuple):
    """A matrix of a parameter: views, so that what is added to them is added to the parameter and its momentum."""

    weight: Tensor
    gradient: Tensor
    momentum: Tensor

    @property
    def kind(self) -> Hashable:
        """What the matrices of a batch have in common."""
        return self.weight.shape, self.weight.dtype, self.weight.device


class Muon(Lamb):
    """Groups with `muon` have orthogonal steps, those without it take the steps of AdamW."""

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        stacked: Mapping[Tensor, int] | None = None,
    ) -> None:
        """`stacked`: how many matrices of one height a parameter holds, where that is more than one."""
        super().__init__(params, lr, betas=betas, eps=eps, adapt=False, stacked=stacked)
        self.momentum = momentum
        self._hidden = {weight for group in self.param_groups if group.get("muon") for weight in group["params"]}

    def moments(self, weight: Tensor) -> dict[str, tuple[int, ...]]:
        """The names and shapes of what is kept of a parameter apart from the step."""
        names = (MOMENTUM,) if weight in self._hidden else ("exp_avg", "exp_avg_sq")
        return dict.fromkeys(names, tuple(weight.shape))

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        if not group.get("muon"):
            super()._update(group, weights)
            return
        sound = self._sound(weights[0])
        if is_sharded(weights[0]):
            self._update_sharded(group, weights, sound)
            return
        matrices = (matrix for weight in weights for matrix in self._matrices(weight))
        for batch in group_alike(
            matrices, key=lambda matrix: matrix.kind, numbers=lambda matrix: matrix.weight.numel()
        ):
            targets, gradients, kept = map(list, zip(*batch, strict=True))
            step_SRC = orthogonalised(self._direction(gradients, kept, sound))
            rows, columns = targets[0].shape
            step_SRC *= max(1.0, rows / columns) ** 0.5
            if group["weight_decay"]:
                step_SRC.add_(torch.stack(targets), alpha=group["weight_decay"])
            step_SRC.masked_fill_(~sound, 0.0)
            torch._foreach_add_(targets, list(step_SRC.unbind()), alpha=-group["lr"])

    def _matrices(self, weight: Tensor) -> Iterator[Matrix]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state[MOMENTUM] = torch.zeros_like(weight)
        assert weight.grad is not None
        count = self.stacked.get(weight, 1)
        wholes = (weight.detach(), weight.grad, state[MOMENTUM])
        return map(Matrix, *(whole.chunk(count) for whole in wholes))

    def _update_sharded(self, group: dict[str, Any], weights: list[Tensor], sound: Tensor) -> None:
        """The same for weights that are sharded over ranks: momenta move part by part; only directions are gathered."""
        counts = {weight: self.stacked.get(weight, 1) for weight in weights}
        for batch in group_alike(
            weights, key=lambda each: (each.shape, counts[each]), numbers=lambda each: each.numel()
        ):
            directions = [self._gathered_direction(weight, sound) for weight in batch]
            count = counts[batch[0]]
            step_SRC = orthogonalised(torch.stack([part for whole in directions for part in whole.chunk(count)]))
            step_SRC *= max(1.0, step_SRC.shape[1] / step_SRC.shape[2]) ** 0.5
            for weight, steps in zip(batch, step_SRC.split(count), strict=True):
                step = local_tensor(local_part(steps.flatten(0, 1), weight))
                target = local_tensor(weight.detach())
                step = step.add(target, alpha=group["weight_decay"]).masked_fill_(~sound, 0.0)
                target.add_(step, alpha=-group["lr"])

    def _gathered_direction(self, weight: Tensor, sound: Tensor) -> Tensor:
        """Where a whole parameter would go; this rank's part of its momentum moves on."""
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state[MOMENTUM] = torch.zeros_like(weight)
        assert weight.grad is not None
        gradient, momentum = local_tensor(weight.grad), local_tensor(state[MOMENTUM])
        (direction,) = self._direction([gradient], [momentum], sound)
        return full_tensor(direction, weight)

    def _direction(self, gradients: list[Tensor], kept: list[Tensor], sound: Tensor) -> Tensor:
        """Where the matrices of a batch would go; their momenta move on, unless the step is not sound."""
        gradient_SRC, momentum_SRC = torch.stack(gradients).masked_fill_(~sound, 0.0), torch.stack(kept)
        moved_SRC = torch.where(sound, torch.lerp(momentum_SRC, gradient_SRC, 1 - self.momentum), momentum_SRC)
        torch._foreach_copy_(kept, list(moved_SRC.unbind()))
        return torch.lerp(gradient_SRC, moved_SRC, self.momentum)


def orthogonalised(matrix_SRC: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U S Vᵀ.

    >>> values = torch.linalg.svdvals(orthogonalised(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 0.1, 0.0]]])))
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    a, b, c = COEFFICIENTS
    tall = matrix_SRC.shape[-2] > matrix_SRC.shape[-1]
    x_SRC = matrix_SRC / torch.linalg.matrix_norm(matrix_SRC, keepdim=True).clamp(min=SMALLEST_NORM)
    x_SRC = x_SRC.mT if tall else x_SRC  # on its side: the products are then the smaller ones
    x_SRC = x_SRC.bfloat16() if matrix_SRC.is_cuda else x_SRC
    for _ in range(ITERATIONS):
        gram_SRR = torch.bmm(x_SRC, x_SRC.mT)
        polynomial_SRR = torch.baddbmm(gram_SRR, gram_SRR, gram_SRR, beta=b, alpha=c)
        x_SRC = torch.baddbmm(x_SRC, polynomial_SRR, x_SRC, beta=a)
    step_SRC: Tensor = x_SRC.mT if tall else x_SRC
    return step_SRC.to(matrix_SRC.dtype).contiguous()
