"""`--quiet`: results and errors stay, progress and what to do next go.

    def embed(…, quiet: Quiet = False) -> None:
        with Counting("words") as count: …           # shows nothing where it is quiet
        chat("next: larvatus similar …")

Before or after the command's name: `larvatus --quiet embed …` is `larvatus embed … --quiet`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from larvatus.data.text.documents import Skipped

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether this command was asked to show its results alone."""
    return _quiet.get()


def chat(line: str) -> None:
    """A line that is no result: it is left out where it is quiet."""
    if not is_quiet():
        print(line)


def hush(context: typer.Context, given: bool) -> bool:
    if given and not context.resilient_parsing:
        context.with_resource(quietly())
    return given


def progress_console(**settings: Any) -> Any:
    """Where progress goes: standard error, or nowhere. (rich is imported by commands that show something.)"""
    from rich.console import Console

    return Console(stderr=True, quiet=is_quiet(), **settings)


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", callback=hush, rich_help_panel="Output", help="Show results and errors alone, no progress."
    ),
]


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


def say_left_out(skipped: Skipped) -> None:
    """One line on standard error, where anything was left out that may be text."""
    if skipped.total or skipped.left:
        print(f"left out: {skipped}", file=sys.stderr)


def say_counts(skipped: Mapping[str, int]) -> None:
    """The same of a corpus that was built to be read once: counts by reason."""
    if skipped:
        print("left out: " + " · ".join(f"{count:,} × {reason}" for reason, count in skipped.items()), file=sys.stderr)
