"""What workers of tests do, in a file of its own: they import it, and nothing that takes seconds."""

from __future__ import annotations

import os
import signal
import time


def slow_square(state: int, task: int) -> tuple[int, int]:
    time.sleep(0.05)
    return os.getpid(), task * task + state


def deadly(state: int, task: int) -> int:
    """Task 3 kills its worker."""
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task
