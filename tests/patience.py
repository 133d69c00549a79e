"""Limits that only a hang reaches, and CPU time of two sizes: what tests use in place of a clock.

A machine with ten other busy processes takes ten times as long for everything. So no test asserts how many seconds
something took (`tests/test_no_clocks.py` checks that): it looks at what was done, or compares CPU time of two sizes.

    with watchdog():                                        # a hang becomes a failure
        subprocess.run(words, timeout=WATCHDOG_S)
    assert_linear(lambda size: read("a" * size), 1_000_000)
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WATCHDOG_S = float(os.environ.get("LARVATUS_WATCHDOG_S", "600"))
"""Seconds after which something hangs. `tests/faults/test_defences.py` lowers it, because there a hang is expected."""


@contextmanager
def watchdog(seconds: float = WATCHDOG_S) -> Iterator[None]:
    """Fail when what is inside does not end; in the main thread only, and not nested."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it did not end within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def waiting(pipe: Any) -> int:
    """Bytes in a pipe that nobody has read yet; either end may ask."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def cpu_seconds(work: Callable[[], Any], *, times: int = 2) -> float:
    """CPU time of this process, the least of a few: other processes do not count, and caches only add to it."""
    least = float("inf")
    for _ in range(times):
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
    return least


def assert_linear(work: Callable[[int], Any], size: int, *, factor: int = 8, floor: float = 0.02) -> None:
    """CPU time for `factor` times the size is at most three times `factor` as much; quadratic is `factor` squared.

    `floor`: the least CPU time that the smaller size is taken for, as the timer is coarse. Choose a size for which
    quadratic work would take seconds.
    """
    small = cpu_seconds(lambda: work(size))
    large = cpu_seconds(lambda: work(factor * size), times=1)
    limit = 3 * factor * max(small, floor)
    if large > limit:  # once more: a page that was swapped out costs CPU time, too
        large = min(large, cpu_seconds(lambda: work(factor * size)))
    assert large <= limit, f"{size:,}: {small:.3f} CPU seconds, {factor * size:,}: {large:.3f}"
