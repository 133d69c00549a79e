"""Several processes, one result: every rank computes its share of a step, and gradients are added up.

    torchrun --nproc-per-node 2 -m larvatus pretrain bert …

A step's microbatches are dealt out in turn; `parallel.py` adds up gradients. Losses are divided by the counts of the
whole step before the backward pass, so the sum over ranks is the gradient of the whole step, however it was cut.

Before the first step the ranks check that they train the same: ranks that differ would add up gradients of different
things, or wait for each other for ever.

    check_ranks_agree(ranks, {**versions(), "seed": 1, "recipe": recipe_table(recipe)})

    larvatus: rank 3 on node07 differs from rank 0 on node06: seed: 1 → 2; start all ranks with …            (exit 2)

While it trains, a rank reports what it is doing to its watchdog (`watchdog.py`), and rank 0 reports which is slowest:

    with guarded_by(watchdog):
        at_step(12)
        with timed_compute("cuda"): …  # around what a rank computes by itself in a step
        with waiting():                # for other ranks
            dist.all_reduce(tensor)
        with busy("saving"): …         # what may take long while other ranks wait
        steps_finished()

The numbers come with the heartbeats: no step waits for them. On a CPU it is the time of a step without that of waiting
for others; on a GPU that between two events on its stream, read once they have passed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from larvatus.core.errors import LarvatusError, UsageError, first_line
from larvatus.core.run_identity import VERSION, changed_fields
from larvatus.core.signals import signal_handlers
from larvatus.models.nn.device import choose_device
from larvatus.training.engine.launch import Launch, Rendezvous, check_address, join_store, launch, reporting_wait
from larvatus.training.engine.reporter import MetricsLog
from larvatus.training.engine.settings import SILENT_S
from larvatus.training.engine.watchdog import RankWatchdog

_current: RankWatchdog | None = None
"""A process is one rank of one group at a time, as `torch.distributed` has it."""


@contextmanager
def guarded_by(watchdog: RankWatchdog) -> Iterator[None]:
    """Watch the other ranks; what is raised inside is reported to them, or explained by their failure."""
    global _current
    _current = watchdog
    try:
        yield
    except BaseException as fault:
        # torchrun sends SIGTERM to all as soon as one has failed, before they know which
        with signal_handlers(signal.SIG_IGN, signal.SIGTERM):
            explained = watchdog.explained(fault)
            watchdog.close(in_order=False)
        if explained is fault:
            raise
        raise explained from fault
    else:
        watchdog.close()
    finally:
        _current = None


def waiting() -> AbstractContextManager[None]:
    """Around what waits for other ranks."""
    return nullcontext() if _current is None else _current.doing()


def busy(words: str) -> AbstractContextManager[None]:
    """Around what may take long on one rank while others wait for it."""
    return nullcontext() if _current is None else _current.doing(words)


def at_step(step: int) -> None:
    """A step begins, counted from 0."""
    if _current is not None:
        _current.at_step(step)


def steps_finished() -> None:
    """No step is under way any more: what is still done may take as long as it likes."""
    if _current is not None:
        _current.finished()


EVERY_S = 10.0
"""Between two records."""
BEHIND = 1.5
"""Times what the others need, from which on a rank is named."""


@contextmanager
def timed_compute(device: str) -> Iterator[None]:
    """Time this rank's own part of a step. On a CPU its clock already shows that."""
    if _current is None or not device.startswith("cuda"):
        yield
        return
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    yield
    ended.record()
    _current.compute_seconds = lambda: began.elapsed_time(ended) / 1000 if ended.query() else None


class StragglerReport:
    """Rank 0's record of all; where there is one rank, nothing."""

    def __init__(self, metrics: MetricsLog, warn: Callable[[str], None]) -> None:
        self._metrics, self._warn = metrics, warn
        self._looked = time.monotonic()
        self._named: int | None = None

    def look(self, step: int) -> None:
        if _current is None or time.monotonic() - self._looked < EVERY_S:
            return
        self._looked = time.monotonic()
        states = _current.known_states
        seconds = {rank: state.busy for rank, state in states.items() if state.busy > 0}
        if len(seconds) < _current.count:  # some have not finished two steps
            return
        slowest = max(seconds, key=lambda rank: seconds[rank])
        others = statistics.median(taken for rank, taken in seconds.items() if rank != slowest)
        behind = seconds[slowest] / max(others, 1e-9)
        host = states[slowest].where.host
        values = {"slowest": slowest, "host": host, "seconds": round(seconds[slowest], 6), "others": round(others, 6)}
        each = {str(rank): round(taken, 6) for rank, taken in seconds.items()}
        self._metrics.write("ranks", step, {**values, "behind": round(behind, 3), "each": each})
        if behind >= BEHIND and slowest != self._named:
            self._warn(
                f"step {step:,}: rank {slowest} on {host} computes {seconds[slowest]:.3g} s a step, the others "
                f"{others:.3g}: all wait for it"
            )
        self._named = slowest if behind >= BEHIND else None


# The group of all ranks.

T = TypeVar("T")

RENDEZVOUS_S = 600.0
"""For all ranks to come: machines of a cluster do not start at once."""
COLLECTIVE_DAYS = 30
"""In effect no timeout of the process group. It would limit every collective alike, also one in which ranks wait for
rank 0 to build shards for hours; a collective that runs into it names no rank; and NCCL then aborts the process before
the error is printed. `watchdog.py` knows which rank is silent and what it is allowed to take long for."""


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many."""

    rank: int = 0
    count: int = 1
    restarted: bool = False
    """Whether a launcher started all of them again, because one was lost."""

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
            with waiting():
                dist.all_reduce(tensor)
        return tensor

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Sums over ranks of whole numbers that the host knows: no device is read."""
        return list(numbers) if self.count == 1 else self.add(torch.tensor(numbers, dtype=torch.int64)).tolist()

    def wait(self) -> None:
        """Until all ranks are here."""
        self.totals([0])

    def any(self, flag: bool) -> bool:
        """Whether this is true on any rank: a signal to one stops all at the same step."""
        return self.totals([int(flag)])[0] > 0

    def share(self, make: Callable[[], T]) -> T:
        """Made by the main rank, given to all."""
        if self.count == 1:
            return make()
        with busy("preparing"):
            box: list[Any] = [make() if self.main else None]
        with waiting():
            dist.broadcast_object_list(box)
        made: T = box[0]
        return made

    def gather(self, item: T) -> list[T]:
        """What each rank has, in the order of the ranks, for all."""
        if self.count == 1:
            return [item]
        items: list[Any] = [None] * self.count
        with waiting():
            dist.all_gather_object(items, item)
        return items

    def agree(self, number: int) -> int:
        """The main rank's number, for all."""
        return self.totals([number if self.main else 0])[0]


@contextmanager
def ranks(device: str, timeout_s: float = SILENT_S) -> Iterator[Ranks]:
    """Join the other processes where a launcher started several; a single process otherwise.

    A rank that dies, is silent for `timeout_s`, or fails, ends it for all: see `watchdog.py`.
    """
    launched = launch()
    if launched.count == 1:
        yield Ranks(restarted=launched.restarts > 0)
        return
    check_address(launched)
    launched.export()
    cuda = device.startswith("cuda")
    if cuda:
        os.environ.setdefault(
            "TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"
        )  # else NCCL aborts before anyone knows who is lost
        own_gpu = launched.by == "SLURM" and torch.cuda.device_count() == 1  # srun shows a task no other
        torch.cuda.set_device(choose_device(f"cuda:{0 if own_gpu else launched.local}"))
    store, restarted = _met(launched)
    apart: Store = store.clone()  # type: ignore[attr-defined]
    watch = RankWatchdog(
        apart, rank=launched.rank, count=launched.count, timeout_s=timeout_s, first_here=launched.local == 0
    )
    watch.start()
    with guarded_by(watch):
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=launched.rank,
                world_size=launched.count,
                timeout=timedelta(days=COLLECTIVE_DAYS),
            )
        except (ValueError, OSError) as fault:
            raise _not_met(launched, fault) from fault
        yield Ranks(launched.rank, launched.count, restarted)
        with waiting():
            dist.destroy_process_group()  # where anything was raised, the process that ends does: this could hang


def _met(launched: Launch) -> Rendezvous:
    """The store at which all ranks meet; each must come within `RENDEZVOUS_S`."""
    try:
        with reporting_wait(launched, RENDEZVOUS_S):
            store, rank, count = next(rendezvous("env://", timeout=timedelta(seconds=RENDEZVOUS_S)))
            return join_store(store, rank=rank, count=count, restarts=launched.restarts, limit_s=RENDEZVOUS_S)
    except (RuntimeError, ValueError, OSError) as fault:  # nobody listens there, or the address cannot be
        raise _not_met(launched, fault) from fault


def _not_met(launched: Launch, fault: Exception) -> UsageError:
    address = f"{launched.address}:{launched.port}"
    return UsageError(f"the {launched.count} processes did not meet at {address}: {first_line(fault)}")


SHOWN = 4
"""Differing fields that a message names."""
LONGEST = 80
"""Characters of a value that are shown."""


def versions() -> dict[str, str]:
    """What runs here: versions, and a checksum of the code itself, which may be edited without a new version."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "larvatus": VERSION, "code": _code()}


@functools.cache
def _code() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parents[2]
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def check_ranks_agree(ranks: Ranks, told: Mapping[str, Any]) -> None:
    """Refuse to continue where any rank has other values than rank 0; values are plain data."""
    if ranks.count == 1:
        return
    first = ranks.share(lambda: (platform.node(), dict(told)))
    differs = [_shown(change.field, change.before, change.now) for change in changed_fields(first[1], dict(told))]
    answers = ranks.gather((platform.node(), differs))
    others = [(rank, host, fields) for rank, (host, fields) in enumerate(answers) if fields]
    if others:
        rank, host, fields = others[0]
        more = f"; and {len(fields) - SHOWN} more" if len(fields) > SHOWN else ""
        besides = f" (and {len(others) - 1} more ranks)" if len(others) > 1 else ""
        fault = UsageError(
            f"rank {rank} on {host}{besides} differs from rank 0 on {first[0]}: {'; '.join(fields[:SHOWN])}{more}; "
            "start all ranks with the same command, text and versions"
        )
        fault.on_all_ranks = True
        raise fault


def blame_ranks(fault: LarvatusError, ranks: Ranks, *, mine: bool) -> LarvatusError:
    """A fault that all ranks have at once, with the names of those that say it is theirs; all must call this."""
    if ranks.count > 1:
        answers = ranks.gather((platform.node(), mine))
        guilty = [f"rank {rank} on {host}" for rank, (host, says_so) in enumerate(answers) if says_so]
        if 0 < len(guilty) < ranks.count:
            fault.args = (f"{', '.join(guilty[:SHOWN])}{' …' if len(guilty) > SHOWN else ''}: {fault}",)
        fault.on_all_ranks = True
    return fault


def _shown(field: str, before: object, now: object) -> str:
    values = [value if len(value) <= LONGEST else f"{value[:LONGEST]}…" for value in (repr(before), repr(now))]
    return f"{field}: {' → '.join(values)}"
