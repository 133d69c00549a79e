"""When to come back: how fast answers leave, and so how long a queue will last.

>>> clock = iter([0.0, 0.5, 1.0]).__next__
>>> pace = Pace(clock=clock)
>>> pace.left(); pace.left(); pace.left()
>>> pace.seconds_for(9)
5
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

LONGEST_S = 120
KEPT = 0.9
"""How much of the pace so far stays with each answer: about the last ten count."""
PAUSE_S = 5.0
"""A longer gap between two answers says that nobody asked, not that answers are slow."""


class Pace:
    """The mean gap between answers, the last ones counting most."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gap: float | None = None
        self._last: float | None = None
        self._lock = threading.Lock()

    def left(self) -> None:
        """An answer left."""
        with self._lock:
            now = self._clock()
            if self._last is not None and now - self._last <= PAUSE_S:
                gap = now - self._last
                self._gap = gap if self._gap is None else KEPT * self._gap + (1 - KEPT) * gap
            self._last = now

    def seconds_for(self, waiting: int) -> int:
        """Whole seconds until so many have their answer, at least one: what Retry-After says."""
        return min(LONGEST_S, max(1, math.ceil(waiting * (self._gap or 0.0))))
