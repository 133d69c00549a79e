"""Adafactor (Shazeer & Stern 2018), as T5 was trained with it: Adam whose second moments are kept by rows and columns.

    R ← β R + (1 − β) mean_columns(G² + ε₁)       C ← β C + (1 − β) mean_rows(G² + ε₁)       β = 1 − t^−0.8
    V = R Cᵀ / mean(R)        U = G / √V        U ← U / max(1, rms(U) / d)        W ← W − η max(ε₂, rms(W)) U

A matrix of n × m numbers needs n + m second moments instead of n · m, and a step moves a weight in proportion to the
root mean square of its matrix, so that η has no unit: 0.01 in T5. ε₁ = 1e-30, ε₂ = 1e-3, d = 1, as published. Vectors
keep all of their second moments. Where a parameter holds several matrices, one above the other, each is treated by
itself, as in `lamb.py`. First moments are kept where β₁ is above 0; T5 has none. Parameters of one shape are updated
together: one by one, a GPU waits for thousands of small kernels.

Where `found_inf` is set to 1, a step changes nothing at all, as in `lamb.py`. Nothing here waits for a GPU.
S matrices of R × C numbers in the parameters that are updated together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from larvatus.training.engine.lamb import MatrixOptimizer, group_alike

EPSILON_SQUARE, EPSILON_SCALE, CLIP, DECAY_POWER = 1e-30, 1e-3, 1.0, -0.8


class Adafactor(MatrixOptimizer):
    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        *,
        beta1: float = 0.0,
        weight_decay: float = 0.0,
        stacked: Mapping[Tensor, int] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "weight_decay": weight_decay}, stacked)

    def _kind(self, weight: Tensor) -> Hashable:
        return weight.shape, self.stacked.get(weight, 1), weight.dtype, weight.device

    def moments(self, weight: Tensor, *, beta1: float) -> dict[str, tuple[int, ...]]:
        """The names and shapes of what is kept of a parameter apart from the step."""
        first = {"exp_avg": tuple(weight.shape)} if beta1 else {}
        if weight.ndim < 2:
            return {**first, "exp_avg_sq": tuple(weight.shape)}
        matrices, rows, columns = self._as_matrices(weight).shape
        return {**first, "exp_avg_sq_row": (matrices, rows), "exp_avg_sq_col": (matrices, columns)}

    def _as_matrices(self, weight: Tensor) -> Tensor:
        """[S, R, C]; a vector is one row."""
        return weight.reshape(self.stacked.get(weight, 1), -1, weight.shape[-1])

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        for alike in group_alike(weights, key=self._kind, numbers=Tensor.numel):
            self._update_alike(group, alike)

    def _update_alike(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        states = [self._state(group, weight) for weight in weights]
        first, sound = weights[0], self._sound(weights[0])
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, sound.to(steps[0].dtype))
        matrices = self.stacked.get(first, 1)  # in each parameter
        step_S11 = torch.stack(steps).repeat_interleave(matrices)[:, None, None]
        beta2_S11 = 1 - step_S11.clamp(min=1).pow(DECAY_POWER)
        shape = len(weights) * matrices, -1, first.shape[-1]
        matrix_SRC = torch.stack([weight.detach() for weight in weights]).float().reshape(shape)
        gradient = torch.stack([weight.grad for weight in weights if weight.grad is not None])
        gradient_SRC = gradient.masked_fill(~sound, 0.0).float().reshape(shape)
        update_SRC = gradient_SRC * _root(states, gradient_SRC.square() + EPSILON_SQUARE, beta2_S11, sound)
        update_SRC /= (_rms(update_SRC) / CLIP).clamp(min=1)
        update_SRC *= group["lr"] * _rms(matrix_SRC).clamp(min=EPSILON_SCALE)
        if beta1 := group["beta1"]:
            mean_SRC = torch.stack([state["exp_avg"] for state in states]).reshape(update_SRC.shape)
            update_SRC = torch.where(sound, beta1 * mean_SRC + (1 - beta1) * update_SRC, mean_SRC)
            _keep(states, "exp_avg", update_SRC)
        if group["weight_decay"]:
            update_SRC = update_SRC + group["lr"] * group["weight_decay"] * matrix_SRC
        update = torch.where(sound, update_SRC, 0.0).to(first.dtype).reshape(len(weights), *first.shape)
        torch._foreach_sub_(weights, list(update.unbind()))

    def _state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            shapes = self.moments(weight, beta1=group["beta1"])
            state.update({name: weight.new_zeros(shape, dtype=torch.float32) for name, shape in shapes.items()})
        return state


def _root(states: list[dict[str, Tensor]], square_SRC: Tensor, beta2_S11: Tensor, sound: Tensor) -> Tensor:
    """1 / √V, once the second moments have moved on, unless the step is not sound."""

    def moved(name: str, new: Tensor) -> Tensor:
        kept = torch.stack([state[name] for state in states]).reshape(new.shape)
        beta2 = beta2_S11.reshape(-1, *[1] * (new.ndim - 1))
        kept = torch.where(sound, beta2 * kept + (1 - beta2) * new, kept)
        _keep(states, name, kept)
        return kept

    if "exp_avg_sq" in states[0]:
        return moved("exp_avg_sq", square_SRC).rsqrt()
    rows_SR = moved("exp_avg_sq_row", square_SRC.mean(-1))
    columns_SC = moved("exp_avg_sq_col", square_SRC.mean(-2))
    share_SR = rows_SR / rows_SR.mean(-1, keepdim=True)
    return share_SR.rsqrt()[:, :, None] * columns_SC.rsqrt()[:, None, :]


def _keep(states: list[dict[str, Tensor]], name: str, new: Tensor) -> None:
    """What the moments of several parameters have become."""
    kept = [state[name] for state in states]
    torch._foreach_copy_(kept, list(new.reshape(len(kept), *kept[0].shape).unbind()))


def _rms(x_SRC: Tensor) -> Tensor:
    """Root mean square of each matrix, [S, 1, 1]."""
    return x_SRC.square().mean((1, 2), keepdim=True).sqrt()
