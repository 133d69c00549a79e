"""LAMB and Adafactor: Adam with steps scaled by layer, and with second moments by rows and columns.

    r = m̂ / (√v̂ + ε)        u = r + λ w        w ← w − η (‖w‖ / ‖u‖) u                                       LAMB

    R ← β R + (1 − β) mean_columns(G² + ε₁)       C ← β C + (1 − β) mean_rows(G² + ε₁)       β = 1 − t^−0.8
    V = R Cᵀ / mean(R)        U = G / √V        U ← U / max(1, rms(U) / d)        W ← W − η max(ε₂, rms(W)) U  Adafactor

**LAMB** (You et al. 2020, *Large batch optimization for deep learning*, algorithm 2): the step in each matrix is as
long as the matrix itself, so that batches of thousands of sequences keep their high rates stable. The ratio ‖w‖ / ‖u‖
is 1 where either norm is 0. Norms and biases are neither decayed nor given a ratio: they take the plain step of Adam,
as in the released code of BERT's LAMB and of ALBERT. Moments are corrected for their bias, as in the paper (ALBERT's
own code leaves that out: its warm-up hides the difference).

**Adafactor** (Shazeer & Stern 2018), as T5 was trained with it: a matrix of n × m numbers needs n + m second moments
instead of n · m, and a step moves a weight in proportion to the root mean square of its matrix, so that η has no unit:
0.01 in T5. ε₁ = 1e-30, ε₂ = 1e-3, d = 1, as published. Vectors keep all of their second moments. First moments are kept
where β₁ is above 0; T5 has none. Parameters of one shape are updated together: one by one, a GPU waits for thousands of
small kernels.

Where a parameter holds several matrices of the papers, one above the other (W^Q, W^K and W^V in `Attention.qkv`, both
halves of a gated feedforward layer), each is treated by itself (`stacked_matrices`). Where the check of the gradients
has set `found_inf` to 1, a step changes nothing: weights, moments and count stay. Nothing here waits for a GPU.
`MatrixOptimizer` is the base of both and of Muon.

S matrices of R × C numbers in the parameters that are updated together.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from larvatus.training.engine.parallel import local_tensor

TOGETHER = 1 << 25
"""Numbers of parameters that are updated together, at most: what a step needs for a while grows with them."""
T = TypeVar("T")


def group_alike(items: Iterable[T], *, key: Callable[[T], Hashable], numbers: Callable[[T], int]) -> Iterator[list[T]]:
    """Items of one key, in lists that have at most `TOGETHER` numbers, or a single item."""
    kinds: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        kinds[key(item)].append(item)
    for members in kinds.values():
        most = max(1, TOGETHER // max(1, numbers(members[0])))
        yield from (members[start : start + most] for start in range(0, len(members), most))


class MatrixOptimizer(Optimizer):
    """Base of optimizers that know which matrices a parameter holds, and that skip a step without waiting for a GPU."""

    found_inf: Tensor | None = None
    """A number on the device of the weights: above 0, the step changes nothing."""

    def __init__(
        self, params: Iterable[dict[str, Any]], defaults: dict[str, Any], stacked: Mapping[Tensor, int] | None
    ) -> None:
        """`stacked`: how many matrices of one height a parameter holds, where that is more than one."""
        self.stacked = dict(stacked or {})
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(group, weights)
        return loss

    @abstractmethod
    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Step the weights of a group that have a gradient."""

    def _sound(self, like: Tensor) -> Tensor:
        """Whether to step at all: a truth value that stays on the device."""
        if self.found_inf is None:
            return torch.ones((), dtype=torch.bool, device=like.device)
        return self.found_inf.to(like.device) == 0


class Lamb(MatrixOptimizer):
    """Groups with `adapt` have the ratio, those without it take the steps of Adam."""

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adapt: bool = True,
        stacked: Mapping[Tensor, int] | None = None,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": adapt}
        super().__init__(params, defaults, stacked)

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        sound = self._sound(weights[0])
        grads = [local_tensor(weight.grad) for weight in weights if weight.grad is not None]
        updates = self._adam(group, weights, [gradient.masked_fill(~sound, 0.0) for gradient in grads], sound)
        parts = [local_tensor(weight) for weight in weights]
        if group["weight_decay"]:
            torch._foreach_add_(updates, parts, alpha=group["weight_decay"])
        if group["adapt"]:
            matrices = [part for weight in weights for part in weight.chunk(self.stacked.get(weight, 1))]
            steps = [
                part
                for weight, update in zip(weights, updates, strict=True)
                for part in update.chunk(self.stacked.get(weight, 1))
            ]
            torch._foreach_mul_(steps, _ratios(matrices, steps))  # the parts are views of the updates
        for update in updates:
            update.masked_fill_(~sound, 0.0)
        torch._foreach_add_(parts, updates, alpha=-group["lr"])

    def _adam(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], sound: Tensor
    ) -> list[Tensor]:
        """m̂ / (√v̂ + ε) for each weight; its moments move on, unless the step is not sound."""
        states = [self._state(weight) for weight in weights]
        first, second = ([local_tensor(state[name]) for state in states] for name in ("exp_avg", "exp_avg_sq"))
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, [sound.to(steps[0].dtype)] * len(steps))  # to one tensor it would wait for the GPU
        count = steps[0].clamp(min=1)  # one for all: the weights of a run are updated together
        squares = list(torch._foreach_mul(gradients, gradients))
        corrected = []
        for moments, news, beta in zip((first, second), (gradients, squares), group["betas"], strict=True):
            gain = sound.to(moments[0].dtype) * (1 - beta)  # 0 where nothing is to change
            torch._foreach_mul_(moments, 1 - gain)
            torch._foreach_mul_(news, gain)
            torch._foreach_add_(moments, news)
            # 1 − β^t, without the loss of digits of that difference
            unbias = -torch.expm1(count.to(moments[0].dtype) * math.log(beta)) if beta else torch.ones_like(gain)
            corrected.append(torch._foreach_div(moments, unbias))
        torch._foreach_sqrt_(corrected[1])
        torch._foreach_add_(corrected[1], group["eps"])
        torch._foreach_div_(corrected[0], corrected[1])
        return list(corrected[0])

    def _state(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weight) for _ in range(2))
        return state


def _ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """‖w‖ / ‖u‖ for each weight; 1 where one of them is 0."""
    long_P, wide_P = (torch.stack(list(torch._foreach_norm(tensors))) for tensors in (weights, updates))
    ratios_P = torch.where((long_P > 0) & (wide_P > 0), long_P / wide_P, 1.0)
    return list(ratios_P.unbind())


# Adafactor.

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
