"""How fast a training is, and how long it still takes.

speed.per_second(tokens), speed.left(steps)        # over the last steps, pauses left out
pace.left(step, steps)                             # by the clock, all counted in
Deadline(at).steps(step, steps)                    # fewer, where so many would not be done by then
"""

from __future__ import annotations

import time


class Speed:
    """Tokens a second over the last steps, and the time left; pauses (evaluation, saving) do not count."""

    def __init__(self, memory: float = 0.9) -> None:
        self._memory = memory
        self._then: float | None = time.monotonic()
        self._seconds: float | None = None
        self._tokens: float = 0.0

    def pause(self) -> None:
        self._then = time.monotonic()

    def per_second(self, tokens: int) -> float:
        """After a step of so many tokens."""
        now = time.monotonic()
        took = now - (self._then or now)
        self._then = now
        if self._seconds is None:
            self._seconds, self._tokens = took, float(tokens)
        else:
            self._seconds = self._memory * self._seconds + (1 - self._memory) * took
            self._tokens = self._memory * self._tokens + (1 - self._memory) * tokens
        return self._tokens / max(self._seconds, 1e-9)

    def left(self, steps: int) -> str:
        return time_left(steps * (self._seconds or 0.0))


class Pace:
    """How long the training under way still takes, by the clock: evaluations and checkpoints are counted in."""

    def __init__(self) -> None:
        self._began: tuple[int, float] | None = None
        self._now = (0, 0)

    def left(self, step: int, steps: int) -> str:
        """``17 min left`` at most; nothing before there is something to go by."""
        before, self._now = self._now, (step, steps)
        if self._began is None or step <= before[0] or steps != before[1]:  # the first, or another seed
            self._began = step, time.monotonic()
            return ""
        return time_left((steps - step) * (time.monotonic() - self._began[1]) / (step - self._began[0]))


class Deadline:
    """When a run must end: where it is slower than was planned, because others use the machine, it makes fewer steps.

    What such a run learns depends on the clock; runs that are to be repeated have none.
    """

    FIRST = 5
    """Steps before anything is said."""

    def __init__(self, at: float) -> None:
        """`at` as `time.monotonic` gives it."""
        self._at = at
        self._began: tuple[int, float] | None = None

    def steps(self, step: int, steps: int) -> int:
        """How many steps there will be, after so many of so many."""
        now = time.monotonic()
        if self._began is None:
            self._began = step, now
        done = step - self._began[0]
        if done < self.FIRST and now < self._at:
            return steps
        fit = (self._at - now) * done / max(1e-9, now - self._began[1])
        return min(steps, step + max(0, int(fit)))


def time_left(seconds: float) -> str:
    """
    >>> time_left(89), time_left(1_020)
    ('89 s left', '17 min left')
    """
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
