"""Time and memory of functions: several functions run in turn, and medians are reported; the matrix ceiling.

    times = time_in_turns({"larvatus": ours, "transformers": theirs}, device="cuda", seconds=3.0)
    times["larvatus"].median, times["larvatus"].low
    peak_bytes(ours, device="cuda")              # beyond what was held before
    matrix_ceiling("cuda", "bf16", seconds=2.0).flops

The matrix ceiling is the most floating-point operations per second that this device reaches in a matrix product.
Training cannot be faster. The peak of the vendor's data sheet is never reached; both are reported (model FLOP
utilisation, MFU, is a share of either: Chowdhery et al. 2022, appendix B).
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

from larvatus.training.engine.reporter import peak_flops

LEAST, MOST = 3, 200
"""Fewest and most rounds."""


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds of a call."""

    median: float
    low: float
    high: float
    rounds: int


def synchronize(device: str) -> None:
    """Wait until the device has finished all work."""
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
    """Time each function for about `seconds`, in turn, reversing the order every round, after `warm` rounds."""
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
    """Peak memory of tensors during a call, beyond the memory before it."""
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
    """Suppress lines that the profiler writes to standard error from outside Python."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def process_peak(work: Callable[[], Any]) -> int | None:
    """Peak memory of this process during a call, beyond the memory before it; None if the system does not report it."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5", encoding="ascii")  # reset the high-water mark
        before = _kilobytes(status, "VmRSS")
    except (OSError, ValueError):
        work()
        return None
    work()
    return 1024 * max(0, _kilobytes(status, "VmHWM") - before)


def _kilobytes(status: Path, name: str) -> int:
    lines = status.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


SIZES = {"cuda": (2048, 4096, 8192, 16_384), "cpu": (256, 512, 1024, 2048)}


class Ceiling(Struct, frozen=True, kw_only=True):
    """Speed of matrix products."""

    flops: float
    """Measured operations per second."""
    size: int
    """Rows and columns of the fastest matrices."""
    datasheet: float | None
    """Operations per second of the data sheet; None for an unknown device."""


def matrix_ceiling(device: str, precision: str, *, seconds: float) -> Ceiling:
    """The largest rate over square matrices of several sizes, in the training precision."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rates = {}
    sizes = SIZES["cuda" if device.startswith("cuda") else "cpu"]
    for size in sizes:
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(left)
        work = {"product": lambda a=left, b=right, c=out: torch.mm(a, b, out=c)}
        timed = time_in_turns(work, device=device, seconds=seconds / len(sizes), warm=2)["product"]
        rates[size] = 2 * size**3 / timed.low
        if timed.median > seconds:  # larger ones would take much longer than requested
            break
    best = max(rates, key=lambda size: rates[size])
    return Ceiling(flops=rates[best], size=best, datasheet=peak_flops(device, precision))
