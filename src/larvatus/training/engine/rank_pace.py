"""How long each rank computes in a step, and which of them holds the others up.

    with own_time("cuda"): …             # around what a rank computes by itself in a step
    paces = RankPaces(metrics, warn)     # rank 0's
    paces.look(step)                     # now and then a record `ranks` in metrics.jsonl; a line if one is far behind

The numbers come with the beats of `rank_watch.py`: no step waits for them. On a CPU it is the time of a step without
that in which others are waited for; on a GPU that between two events on its stream, looked at once they have passed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from larvatus.training.engine.rank_marks import current
from larvatus.training.engine.watch import Metrics

EVERY_S = 10.0
"""Between two records."""
BEHIND = 1.5
"""Times what the others need, from which on a rank is named."""


@contextmanager
def own_time(device: str) -> Iterator[None]:
    """What is computed inside is this rank's own part of a step. On a CPU its clock tells that already."""
    watch = current()
    if watch is None or not device.startswith("cuda"):
        yield
        return
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    yield
    ended.record()
    watch.computed(lambda: began.elapsed_time(ended) / 1000 if ended.query() else None)


class RankPaces:
    """Rank 0's record of all; where there is one rank, nothing."""

    def __init__(self, metrics: Metrics, warn: Callable[[str], None]) -> None:
        self._metrics, self._warn = metrics, warn
        self._looked = time.monotonic()
        self._named: int | None = None

    def look(self, step: int) -> None:
        watch = current()
        if watch is None or time.monotonic() - self._looked < EVERY_S:
            return
        self._looked = time.monotonic()
        seconds = watch.seconds()
        if len(seconds) < watch.count:  # not all have said anything yet
            return
        slowest = max(seconds, key=lambda rank: seconds[rank])
        others = statistics.median(taken for rank, taken in seconds.items() if rank != slowest)
        behind = seconds[slowest] / max(others, 1e-9)
        host = watch.host(slowest)
        values = {"slowest": slowest, "host": host, "seconds": round(seconds[slowest], 6), "others": round(others, 6)}
        each = {str(rank): round(taken, 6) for rank, taken in seconds.items()}
        self._metrics.write("ranks", step, {**values, "behind": round(behind, 3), "each": each})
        if behind >= BEHIND and slowest != self._named:
            self._warn(
                f"step {step:,}: rank {slowest} on {host} computes {seconds[slowest]:.3g} s a step, the others "
                f"{others:.3g}: all wait for it"
            )
        self._named = slowest if behind >= BEHIND else None
