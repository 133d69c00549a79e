"""Asked to stop (SIGTERM, SIGUSR1, Ctrl-C): at once where nothing would be lost, after the step where something would.

    with listening() as stop:                    # a run: `Stopped` is raised wherever it is …
        with stop.noting():                      # … but not here: the loop looks at `stop.asked` after each step
            with stop.at_once(): evaluate()      # … except for what may be left in the middle
    with resumable("the same command continues"):  # exit code 75 instead of 130 or 143
        …
    with terminable(): …                         # the command line: SIGTERM and Ctrl-C are raised as `Stopped`

Preparing text, building shards, waiting for a worker, evaluating, embedding: a run may be asked to stop in any of them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from larvatus.core.errors import Preempted

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Stopped(BaseException):
    """A signal, raised where it came; no `except Exception` takes it for a fault, no framework for its own Ctrl-C."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class Stop:
    """Whether, and by which signal, a run was asked to stop; and whether that is raised or noted."""

    def __init__(self) -> None:
        self.by: str | None = None
        self._noting = False

    @property
    def asked(self) -> bool:
        return self.by is not None

    def check(self) -> None:
        """Stop now, if that was asked for while it was only noted."""
        if self.by is not None:
            raise Stopped(self.by)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """In here a signal is noted, and who looks for it stops when it suits. A second Ctrl-C means it."""
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
        again, self.by = self.asked, signal.Signals(number).name
        if not self._noting or (again and number == signal.SIGINT):
            raise Stopped(self.by)


@contextmanager
def handle_signals() -> Iterator[Stop]:
    """Listen to the signals; what was there before comes back at the end. Only the main thread may."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop._handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and Ctrl-C unwind, so that what is half written goes and workers end; what is ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    heard = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def resumable(way: str | Callable[[], str]) -> Iterator[None]:
    """Work that another command continues with: a signal ends it as `Preempted`, which says how."""
    try:
        yield
    except Stopped as fault:
        raise Preempted(f"{fault.by} stopped it; {way if isinstance(way, str) else way()}") from fault


def exit_code(by: str) -> int:
    """What a shell says of a command that a signal ended: 130 of Ctrl-C, 143 of SIGTERM."""
    return 128 + signal.Signals[by].value
