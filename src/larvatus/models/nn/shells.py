"""Modules as shells: shapes without memory or values, for weights that come from elsewhere.

with shells():
    model = nn.Linear(768, 768)                # on the meta device
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Unfilled(TorchFunctionMode):
    """Leaves out `torch.nn.init`: on the meta device it fills nothing, but has torch import its compiler for it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def shells() -> Iterator[None]:
    """Inside, modules are made on the meta device, in a fraction of the time."""
    with torch.device("meta"), _Unfilled():
        yield
