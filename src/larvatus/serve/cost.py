"""What a request will cost, estimated before it is queued: tokens that encoders compute, numbers of its answer.

    cost = total_cost(call, counted_lengths)
    check_cost(call, Limits(tokens=32_768, numbers=2_097_152), lengths)       # OverLimit says what would fit

An operation says what an item costs whose texts have some number of tokens (`Operation.estimate`): masked copies, beams
and overlapping windows are counted as often as they are read, layers and vectors as the numbers that are answered. A
byte is at least a token: a request that is cheap by its bytes is not tokenised for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from larvatus.serve.refusals import OverLimit

if TYPE_CHECKING:
    from larvatus.serve.work import Call

SPECIAL = 3
"""Special tokens of a window, at most."""
STEPS = 16
"""Halvings in the search for what would fit."""
Lengths = Sequence[Sequence[int]]
"""For each item, the tokens of its texts."""


@dataclass(frozen=True)
class RequestCost:
    tokens: int
    """That are computed, masked copies and beams included."""
    numbers: int = 0
    """Of the answer."""

    def __add__(self, other: RequestCost) -> RequestCost:
        return RequestCost(self.tokens + other.tokens, self.numbers + other.numbers)


@dataclass(frozen=True)
class Limits:
    tokens: int
    numbers: int
    timeout: float = 0.0
    """Seconds after which a request is given up, where `tokens` is what can be computed in that time; else 0."""

    def allow(self, cost: RequestCost) -> bool:
        return cost.tokens <= self.tokens and cost.numbers <= self.numbers


def windowed(tokens: int, *, reach: int, overlap: int | None = None, shared: int = 0) -> int:
    """Tokens that are computed for a text read in overlapping windows, with `shared` other tokens in each.

    >>> windowed(100, reach=512), windowed(1_000, reach=503, overlap=0), windowed(1_000, reach=503, overlap=400)
    (100, 1000, 3000)
    """
    room = max(1, reach - SPECIAL)
    if tokens + shared <= room:
        return tokens + shared
    size = max(1, room - shared)
    step = max(1, size - (size // 4 if overlap is None else overlap))
    windows = 1 + -(-max(0, tokens - size) // step)
    return windows * min(room, size + shared)


def total_cost(call: Call, lengths: Lengths) -> RequestCost:
    """The cost of a request whose items have texts of so many tokens; of its first items, where there are fewer."""
    operation, model = call.operation, call.subject.model
    each = zip(call.items, lengths, strict=False)
    return sum((operation.estimate(model, item, call.options, of_item) for item, of_item in each), RequestCost(0))


def check_cost(call: Call, limits: Limits, lengths: Lengths) -> None:
    """Refuse what is over a limit, with what would fit."""
    cost = total_cost(call, lengths)
    if limits.allow(cost):
        return
    way = _what_fits(call, limits, lengths)
    if cost.numbers > limits.numbers:
        raise OverLimit(
            f"the answer would have {cost.numbers:,} numbers, and this server gives {limits.numbers:,} to a request "
            f"(--max-numbers); {way}"
        )
    if limits.timeout:
        raise OverLimit(
            f"{cost.tokens:,} tokens would be computed, and this machine computes about {limits.tokens:,} in the "
            f"{limits.timeout:g} seconds that a request has (--timeout); {way}"
        )
    raise OverLimit(
        f"{cost.tokens:,} tokens would be computed, and this server computes {limits.tokens:,} for a request "
        f"(--max-tokens); {way}"
    )


def _what_fits(call: Call, limits: Limits, lengths: Lengths) -> str:
    """How many of the texts, or how long a text."""
    low, high = 0, len(call.items)
    while low < high:  # the first `low` items fit
        middle = (low + high + 1) // 2
        fits = limits.allow(total_cost(call, lengths[:middle]))
        low, high = (middle, high) if fits else (low, middle - 1)
    if low:
        return f"the first {low:,} of these {len(call.items):,} texts would fit"
    part = _part_that_fits(call, limits, lengths[0])
    tokens = int(part * sum(lengths[0]))
    if not tokens:
        return "shorten the text, or lower what is asked of it (layers, beam, blanks, endings)"
    return f"a text of about {tokens:,} tokens in place of {sum(lengths[0]):,} would fit"


def _part_that_fits(call: Call, limits: Limits, lengths: Sequence[int]) -> float:
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        scaled = [int(length * middle) for length in lengths]
        cost = call.operation.estimate(call.subject.model, call.items[0], call.options, scaled)
        low, high = (middle, high) if limits.allow(cost) else (low, middle)
    return low
