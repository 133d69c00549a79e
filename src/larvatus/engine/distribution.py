"""Several processes, one result: every rank computes its share of a step, and gradients are added up.

    torchrun --nproc-per-node 2 -m larvatus pretrain bert …

A step's microbatches are dealt out in turn; how gradients are added up is said in `gradients.py`. Losses are divided by
the counts of the whole step before the backward pass, so the sum over ranks is the gradient of the whole step, however
it was cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from larvatus.errors import UsageError
from larvatus.nn.device import choose_device
from larvatus.ranges import whole

T = TypeVar("T")

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VARIABLES = (*NEEDED, "LOCAL_RANK")
TORCHRUN = "start several processes with torchrun, which sets them all, or unset them: unset RANK WORLD_SIZE"


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many."""

    rank: int = 0
    count: int = 1

    @property
    def main(self) -> bool:
        """The process that writes."""
        return self.rank == 0

    def takes(self, item: int) -> bool:
        """Whether this rank computes that microbatch."""
        return item % self.count == self.rank

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Sums over ranks of whole numbers that the host knows: no device is asked for anything."""
        return list(numbers) if self.count == 1 else self.add(torch.tensor(numbers, dtype=torch.int64)).tolist()

    def wait(self) -> None:
        """Until all ranks are here."""
        self.totals([0])

    def any(self, flag: bool) -> bool:
        """Whether any rank says so: a signal to one stops all at the same step."""
        return self.totals([int(flag)])[0] > 0

    def share(self, make: Callable[[], T]) -> T:
        """Made by the main rank, given to all."""
        if self.count == 1:
            return make()
        box: list[Any] = [make() if self.main else None]
        dist.broadcast_object_list(box)
        made: T = box[0]
        return made

    def agree(self, number: int) -> int:
        """The main rank's number, for all."""
        return self.totals([number if self.main else 0])[0]


def main_process() -> bool:
    """Whether this is the process that shows and writes, as far as is known before the processes have met."""
    return os.environ.get("RANK", "0") == "0"


def said_by_torchrun() -> tuple[int, int]:
    """How many processes there are, and the number of this one on its machine; (1, 0) where nobody says anything.

    Half a set of variables, left over from another program, would have a run wait for processes that do not exist.
    """
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if not given.keys() & {"RANK", "WORLD_SIZE"}:  # clusters set the others for programs of all kinds
        return 1, 0
    numbers: dict[str, int] = {}
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        if name in given:
            most = 65_535 if name == "MASTER_PORT" else numbers.get("WORLD_SIZE", 100_001) - 1
            limits = whole(1, 100_000) if name == "WORLD_SIZE" else whole(0, most)
            try:
                numbers[name] = limits.read(given[name])
            except ValueError as fault:
                raise UsageError(f"{name}={fault}; {TORCHRUN}") from None
    if numbers.get("WORLD_SIZE") == 1 and numbers.get("RANK", 0) == 0:
        return 1, 0
    if missing := [name for name in NEEDED if name not in given]:
        raise UsageError(f"{', '.join(given)} set, but not {', '.join(missing)}; {TORCHRUN}")
    return numbers["WORLD_SIZE"], numbers.get("LOCAL_RANK", 0)


def _first_line(fault: Exception) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


@contextmanager
def ranks(device: str, timeout_s: float = 600.0) -> Iterator[Ranks]:
    """Join the other processes when started by torchrun; alone otherwise."""
    count, local = said_by_torchrun()
    if count == 1:
        yield Ranks()
        return
    cuda = device.startswith("cuda")
    if cuda:
        choose_device(f"cuda:{local}")
        torch.cuda.set_device(local)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError, OSError) as fault:  # nobody listens there, or the address cannot be
        address = ":".join(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT"))
        raise UsageError(f"the {count} processes did not meet at {address}: {_first_line(fault)}") from fault
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
