"""A decorator that excludes a function from compilation: a compiled model breaks its graph there.

    @uncompiled
    def attend_grouped(…): …

It is `torch.compiler.disable`, but torch's compiler, two seconds of imports, is imported when such a function is first
called and not when it is defined: commands that run no model do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:

    def uncompiled(function: Callable[P, T]) -> Callable[P, T]: ...
else:
    try:
        from torch._compile import _disable_dynamo as uncompiled  # torch uses it in its optimizers
    except ImportError:
        uncompiled = torch.compiler.disable
