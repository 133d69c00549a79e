"""What workers do in `test_hangs.py`: a module of its own, so that they start without torch."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from larvatus.data.corpus.processes import Workers


def double(state: str, task: Any) -> Any:
    kind, value = task
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "hang":
        time.sleep(1000)
    elif kind == "work":
        end = time.monotonic() + value
        while time.monotonic() < end:
            sum(range(10_000))
    elif kind == "large":
        return b"x" * value
    return 2 * value


def nothing() -> str:
    return ""


def working(count: int = 2) -> Workers[str, Any, Any]:
    return Workers(count, nothing, double, what="a worker", fix="run it again")
