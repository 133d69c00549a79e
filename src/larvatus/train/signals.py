"""Asked to stop (SIGTERM, SIGUSR1, Ctrl-C): finish the step, save, exit 75. The loop looks after each step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Stop:
    """Whether, and by which signal, the run was asked to stop."""

    def __init__(self) -> None:
        self.by: str | None = None

    @property
    def asked(self) -> bool:
        return self.by is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C means it
        self.by = signal.Signals(number).name


@contextmanager
def listening() -> Iterator[Stop]:
    """Note the signals instead of dying of them; what was there before comes back at the end."""
    stop = Stop()
    before = {number: signal.signal(number, stop._handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
