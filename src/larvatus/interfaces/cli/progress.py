"""`--quiet`: results and errors stay, progress and what to do next go.

    def embed(…, quiet: Quiet = False) -> None:
        with Counting("words") as count: …           # shows nothing where it is quiet
        chat("next: larvatus similar …")

Before or after the command's name: `larvatus --quiet embed …` is `larvatus embed … --quiet`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer

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
