"""Hold the thread that runs encoders until as many batches wait as a test wants to see joined."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from larvatus.interfaces.serve.batcher import Batcher
from larvatus.models.nn.encoder import Encoder
from tests.patience import WATCHDOG_S


@contextmanager
def held(batcher: Batcher, encoder: Encoder) -> Iterator[None]:
    """Within it no pass is run."""
    begun, let_go = threading.Event(), threading.Event()

    def stand() -> None:
        begun.set()
        let_go.wait(WATCHDOG_S)

    thread = threading.Thread(target=batcher.run_alone, args=(encoder, stand))
    thread.start()
    assert begun.wait(WATCHDOG_S)
    try:
        yield
    finally:
        let_go.set()
        thread.join()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other threads bring about."""
    end = time.monotonic() + WATCHDOG_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def at_once(batcher: Batcher, encoder: Encoder, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What calls give whose batches all wait before the first is read; an error is given, not raised."""

    def safely(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as fault:
            return fault

    with ThreadPoolExecutor(len(calls)) as pool:
        with held(batcher, encoder):
            futures = [pool.submit(safely, call) for call in calls]
            until(lambda: batcher.waiting_batches >= len(calls))
        return [future.result() for future in futures]
