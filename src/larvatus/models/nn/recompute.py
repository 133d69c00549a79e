"""Activation checkpointing (Chen et al. 2016, *Training deep nets with sublinear memory cost*), a layer at a time.

    set_recomputing(network, True)          # every encoder in it: what reads, what writes, a generator
    states = encoder(batch)                 # a layer keeps its input alone; the backward pass computes the rest again

The same numbers come out to the bit: dropout draws from torch's generators, whose states are kept with each layer's
input and put back before it is computed again, and the graph that gradients flow through is that of the first pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

T = TypeVar("T")


class Recomputes(nn.Module):
    """A module made of layers, which may be computed again in the backward pass."""

    recomputes: bool = False
    """Whether they are, instead of keeping what they leave."""

    def layer(self, apply: Callable[..., T], *inputs: Any, **more: Any) -> T:
        """What a layer makes of its inputs; the first is a tensor."""
        if not (self.recomputes and torch.is_grad_enabled()):
            return apply(*inputs, **more)
        result: T = checkpoint(apply, *inputs, use_reentrant=False, **more)
        return result


def set_recomputing(module: nn.Module, recomputes: bool) -> None:
    """Whether all that stands in a module keeps what its layers leave, or computes it again."""
    for part in module.modules():
        if isinstance(part, Recomputes):
            part.recomputes = recomputes
