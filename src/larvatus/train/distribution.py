"""Several processes, one result: every rank sees the same step batch, computes its share, and gradients are added up.

    torchrun --nproc-per-node 2 -m larvatus pretrain bert …

A step's microbatches are dealt out in turn. Losses are divided by the counts of the whole step before the backward
pass, so the sum over ranks is the gradient of the whole step, however it was cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many."""

    rank: int = 0
    count: int = 1

    @property
    def main(self) -> bool:
        """The one that writes."""
        return self.rank == 0

    def takes(self, item: int) -> bool:
        """Whether this rank computes that microbatch."""
        return item % self.count == self.rank

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def add_gradients(self, model: nn.Module) -> None:
        """Sum the gradients of all ranks, as one flat tensor (a rank without targets contributes zeros)."""
        if self.count == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self.add(torch.cat([g.reshape(-1) for g in grads]))
        for parameter, grad in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = grad.view_as(parameter)

    def any(self, flag: bool, device: str) -> bool:
        """Whether any rank says so: a signal to one stops all at the same step."""
        return flag if self.count == 1 else bool(self.add(torch.tensor(float(flag), device=device)).item())

    def share(self, make: Callable[[], T]) -> T:
        """Made by the main rank, given to all."""
        if self.count == 1:
            return make()
        box: list[Any] = [make() if self.main else None]
        dist.broadcast_object_list(box)
        made: T = box[0]
        return made

    def agree(self, number: int, device: str) -> int:
        """The main rank's number, for all."""
        return int(self.add(torch.tensor(number if self.main else 0, device=device)).item())


@contextmanager
def ranks(device: str, timeout_s: float = 600.0) -> Iterator[Ranks]:
    """Join the other processes when started by torchrun; alone otherwise."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks()
        return
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout_s))
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
