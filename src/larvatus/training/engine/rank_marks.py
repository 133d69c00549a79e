"""By which a rank says what it does, to its watch (`rank_watch.py`); where there is one rank alone, these do nothing.

with watching(watch):
    at_step(12)
    with waiting():                # for other ranks
        dist.all_reduce(tensor)
    with busy("saving"): …         # what may take long while other ranks wait
    after_the_last()
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from larvatus.training.engine.rank_state import WAITING
from larvatus.training.engine.rank_watch import RankWatch

_current: RankWatch | None = None
"""A process is one rank of one group at a time, as `torch.distributed` has it."""


@contextmanager
def watching(watch: RankWatch) -> Iterator[RankWatch]:
    """Watch over the other ranks; what is raised inside is told to them, or explained by what befell them."""
    global _current
    _current = watch
    try:
        yield watch
    except BaseException as fault:
        with _deaf():
            explained = watch.explained(fault)
            watch.close(in_order=False)
        if explained is fault:
            raise
        raise explained from fault
    else:
        watch.close()
    finally:
        _current = None


@contextmanager
def _deaf() -> Iterator[None]:
    """In here SIGTERM is not heard: torchrun sends it to all as soon as one has failed, before they know which."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def waiting() -> Iterator[None]:
    """Around what waits for other ranks."""
    with busy(WAITING):
        yield


@contextmanager
def busy(words: str) -> Iterator[None]:
    """Around what one rank may do for long while others wait for it."""
    if _current is None:
        yield
    else:
        with _current.doing(words):
            yield


def at_step(step: int) -> None:
    """A step begins, counted from 0."""
    if _current is not None:
        _current.at_step(step)


def after_the_last() -> None:
    """No step is under way any more: what is still done may take as long as it likes."""
    if _current is not None:
        _current.finished()


def current() -> RankWatch | None:
    """The watch of this process, where it is one of several."""
    return _current
