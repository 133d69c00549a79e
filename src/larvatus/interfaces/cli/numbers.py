"""Options that are numbers: each has a range, and NaN and infinities lie in none.

top: Annotated[int, ranged(TOP, "--top", help="How many candidates.")] = 5

    larvatus: --top = 0 must lie between 1 and 1,000,000                                         (exit 2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Range, whole
from larvatus.training.engine.settings import BUDGETS, MICROBATCH, WORKERS

__all__ = ["MICROBATCH", "WORKERS", "ranged"]  # those of the runtime are its own

TOP = whole(1, 1_000_000)
"""Of candidates, neighbours, answers."""
BEAM = whole(1, 100_000)
TOKENS = BUDGETS["tokens"]
"""Read or trained on in all."""
MINUTES = BUDGETS["minutes"]
EVERY = whole(1, 10**12)
"""Steps between one thing and the next."""
PROCESSES = whole(1, 1024)
SEEDS = whole(1, 10_000)
"""How many."""
WINDOW = whole(8, 2**24)
"""Tokens of a window that is trained on."""
PASSAGE = whole(3, 2**24)
PLACES = whole(3, 10**9)
"""In a picture."""
SAMPLES = whole(2, 10_000_000)
"""Of a bootstrap."""
LAYER = whole(1, 10_000)
HEAD = whole(1, 2**24)


def ranged(limits: Range, *names: str, help: str, metavar: str | None = None) -> Any:
    """An option whose value must lie within limits; one that is not given is not looked at."""
    return typer.Option(*names, help=help, metavar=metavar, callback=within(limits))


def within(limits: Range) -> Callable[..., Any]:
    def check(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            limits.check(value, max(param.opts, key=len), UsageError)
        return value

    check.limits = limits  # type: ignore[attr-defined]
    return check


def numbers_of(words: str, limits: Range, *, option: str) -> tuple[int, ...]:
    """Whole numbers with commas between.

    >>> from larvatus.core.ranges import COUNT
    >>> numbers_of("1,2,3", COUNT, option="--seeds")
    (1, 2, 3)
    """
    try:
        return tuple(limits.read(word.strip()) for word in words.split(","))
    except ValueError as fault:
        raise UsageError(f"{option} wants whole numbers with commas between, such as 1,2,3: {fault}") from None
