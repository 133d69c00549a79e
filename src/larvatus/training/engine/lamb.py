"""LAMB (You et al. 2020, *Large batch optimization for deep learning*, algorithm 2): Adam whose step in each matrix is
as long as the matrix itself, so that batches of thousands of sequences keep their high rates stable.

    r = m̂ / (√v̂ + ε)        u = r + λ w        w ← w − η (‖w‖ / ‖u‖) u

The ratio ‖w‖ / ‖u‖ is 1 where either norm is 0. It belongs to a matrix of the paper: where a parameter holds several,
one above the other (W^Q, W^K and W^V in `Attention.qkv`, both halves of a gated feedforward layer), each has its own
(`stacked_matrices`). Norms and biases are neither decayed nor given a ratio: they take the
plain step of Adam, as in the released code of BERT's LAMB and of ALBERT. Moments are corrected for their bias, as in
the paper (ALBERT's own code leaves that out: its warm-up hides the difference).

Where the check of the gradients has set `found_inf` to 1, a step changes nothing: weights, moments and count stay.
Nothing here waits for a GPU. `MatrixOptimizer` is the base of this optimizer, of Adafactor and of Muon.
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
