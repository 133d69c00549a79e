"""Requests to stop (SIGTERM, SIGUSR1, Ctrl-C): at once where nothing would be lost, else after the step.

    with handle_signals() as stop:               # a run: `Stopped` is raised wherever it is …
        with stop.noting():                      # … but not here: the loop checks `stop.requested` after each step
            with stop.at_once(): evaluate()      # … except for what may be left in the middle
    with resumable("the same command continues"):  # exit code 75 instead of 130 or 143
        …
    with terminable(): …                         # the command line: SIGTERM and Ctrl-C are raised as `Stopped`

A signal may come at any time: while text is prepared, shards are built, a worker is waited for, or in an evaluation.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from larvatus.core.errors import Preempted

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Stopped(BaseException):
    """A signal, raised where it came; no `except Exception` takes it for a fault, no framework for its own Ctrl-C."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class Stop:
    """Whether, and by which signal, a stop was requested; and whether that is raised or noted."""

    def __init__(self) -> None:
        self.by: str | None = None
        self._noting = False

    @property
    def requested(self) -> bool:
        return self.by is not None

    def check(self) -> None:
        """Stop now, if a signal was noted."""
        if self.by is not None:
            raise Stopped(self.by)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """In here a signal is only noted, for the caller to check; a second Ctrl-C is raised."""
        with self._set(noting=True):
            yield

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What may be left in the middle, within what may not."""
        with self._set(noting=False):
            self.check()
            yield

    @contextmanager
    def _set(self, *, noting: bool) -> Iterator[None]:
        before, self._noting = self._noting, noting
        try:
            yield
        finally:
            self._noting = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.by = self.requested, signal.Signals(number).name
        if not self._noting or (again and number == signal.SIGINT):
            raise Stopped(self.by)


@contextmanager
def signal_handlers(handler: Handler, *numbers: int) -> Iterator[None]:
    """Use a handler for these signals; the earlier ones come back. Only the main thread can: others change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def handle_signals() -> Iterator[Stop]:
    """Listen to the signals of a run."""
    stop = Stop()
    with signal_handlers(stop._handle, *_SIGNALS):
        yield stop


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and Ctrl-C unwind, so that half-written files go and workers end; what is ignored stays ignored."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    heard = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
    with signal_handlers(handle, *heard):
        yield


@contextmanager
def resumable(way: str | Callable[[], str]) -> Iterator[None]:
    """Work that another command can resume: a signal ends it as `Preempted`, whose message names that command."""
    try:
        yield
    except Stopped as fault:
        raise Preempted(f"{fault.by} stopped it; {way if isinstance(way, str) else way()}") from fault


def exit_code(by: str) -> int:
    """Exit code of a command that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + signal.Signals[by].value
