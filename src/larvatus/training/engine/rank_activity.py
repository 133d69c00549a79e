"""Reports what a rank is doing to its watchdog (`watchdog.py`), and which rank is slowest.

    with guarded_by(watchdog):
        at_step(12)
        with timed_compute("cuda"): …  # around what a rank computes by itself in a step
        with waiting():                # for other ranks
            dist.all_reduce(tensor)
        with busy("saving"): …         # what may take long while other ranks wait
        steps_finished()

    stragglers = StragglerReport(metrics, warn)     # of rank 0
    stragglers.look(step)              # now and then a record `ranks` in metrics.jsonl; a line if one is far behind

The numbers come with the heartbeats: no step waits for them. On a CPU it is the time of a step without that of waiting
for others; on a GPU that between two events on its stream, read once they have passed.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from larvatus.core.signals import signal_handlers
from larvatus.training.engine.reporter import MetricsLog
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
