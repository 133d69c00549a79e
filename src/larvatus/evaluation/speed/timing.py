"""Seconds and bytes of a piece of work: several contenders take turns, medians are told, and nobody is waited for.

times = take_turns({"larvatus": ours, "transformers": theirs}, device="cuda", seconds=3.0)
times["larvatus"].median, times["larvatus"].low
peak_bytes(ours, device="cuda")              # beyond what was held before
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch.profiler import ProfilerActivity, profile

LEAST, MOST = 3, 200
"""Rounds at least, and at most."""


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds of a call."""

    median: float
    low: float
    high: float
    rounds: int


def synchronize(device: str) -> None:
    """Until the device has done all that it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], Any], device: str) -> float:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def time_in_turns(
    works: Mapping[str, Callable[[], Any]], *, device: str, seconds: float, warm: int = 1, least: int = LEAST
) -> dict[str, Timing]:
    """Each in turn, the order reversed every round, for about so many seconds each; `warm` rounds do not count."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(warm):
        for work in works.values():
            work()
    began, rounds = time.perf_counter(), 0
    while rounds < MOST and (rounds < least or time.perf_counter() - began < seconds * len(works)):
        for name in list(works)[:: -1 if rounds % 2 else 1]:
            times[name].append(seconds_of(works[name], device))
        rounds += 1
    return {
        name: Timing(median=statistics.median(taken), low=min(taken), high=max(taken), rounds=rounds)
        for name, taken in times.items()
    }


def peak_bytes(work: Callable[[], Any], device: str) -> int:
    """The most that tensors took during a call, beyond what was held before."""
    if device.startswith("cuda"):
        synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - before
    with _without_chatter(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events: Any = seen.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


@contextmanager
def _without_chatter() -> Iterator[None]:
    """The profiler writes lines of its own to the stream of errors, beneath Python."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def process_peak(work: Callable[[], Any]) -> int | None:
    """The most that this process took during a call, beyond what it had before; None where the system does not say."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5", encoding="ascii")  # the high-water mark begins anew
        before = _kilobytes(status, "VmRSS")
    except (OSError, ValueError):
        work()
        return None
    work()
    return 1024 * max(0, _kilobytes(status, "VmHWM") - before)


def _kilobytes(status: Path, name: str) -> int:
    lines = status.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
