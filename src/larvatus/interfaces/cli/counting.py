"""How far a pass over a corpus has come: a line that changes on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from larvatus.interfaces.cli.progress import progress_console

EVERY = 30.0
"""Seconds between plain lines."""


class Counting:
    """A context: `with Counting("words") as count: count(1_000); count(2_000)`."""

    def __init__(self, what: str) -> None:
        self._what, self._begun, self._said = what, time.monotonic(), time.monotonic()
        self._console = progress_console()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("reading")

    def __enter__(self) -> Counting:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, count: int) -> None:
        self.say(f"{count:,} {self._what} · {count / max(1e-9, time.monotonic() - self._begun):,.0f}/s")

    def say(self, line: str) -> None:
        """The line as it stands."""
        now = time.monotonic()
        self._bar.update(self._task, description=line)
        if not (self._console.is_terminal or self._console.quiet) and now - self._said > EVERY:
            self._said = now
            print(line, file=sys.stderr)
