"""Initialisation as published for BERT: weights from a normal distribution (σ = 0.02) cut at 2σ, biases 0, norms 1, 0.

Every parameter has a generator of its own, f(seed, its name), so adding a head or a layer never changes the others.
The numbers are drawn on CPU, so a model starts the same on every device. A module that is published otherwise (an LSTM,
a mix of layers) has a method `initialise(generator)` of its own.

Modules as shells: shapes without memory or values, for weights that come from elsewhere.

with shells():
    model = nn.Linear(768, 768)                # on the meta device
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from larvatus.core import rng


@torch.no_grad()
def initialise(module: nn.Module, *, seed: int, std: float = 0.02) -> None:
    """Fill all parameters of the module in place."""
    special: list[str] = []
    for place, part in module.named_modules():
        if any(outer == "" or f"{place}.".startswith(f"{outer}.") for outer in special):  # "" is the module itself
            continue
        if callable(published := getattr(part, "initialise", None)):
            published(torch.Generator().manual_seed(rng.derive(seed, f"init {place}")))
            special.append(place)
            continue
        for name, parameter in part.named_parameters(recurse=False):
            if isinstance(part, nn.LayerNorm):
                parameter.fill_(1.0 if name == "weight" else 0.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                generator = torch.Generator().manual_seed(rng.derive(seed, f"init {place}.{name}"))
                drawn = torch.empty(parameter.shape, dtype=torch.float32)
                nn.init.trunc_normal_(drawn, std=std, a=-2 * std, b=2 * std, generator=generator)
                parameter.copy_(drawn)


class _SkipInit(TorchFunctionMode):
    """Leaves out `torch.nn.init`: on the meta device it fills nothing, but has torch import its compiler for it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def empty_weights() -> Iterator[None]:
    """Inside, modules are made on the meta device, in a fraction of the time."""
    with torch.device("meta"), _SkipInit():
        yield
