"""The cost of a request against the limits of a server, before it is queued.

check_cost(call, Limits(tokens=32_768, numbers=2_097_152), lengths)       # OverLimit says what would fit
"""

from __future__ import annotations

from collections.abc import Sequence

from larvatus.interfaces.serve.cost import Limits, RequestCost
from larvatus.interfaces.serve.refusals import OverLimit
from larvatus.interfaces.serve.work import Call

STEPS = 16
"""Halvings in the search for what would fit."""
Lengths = Sequence[Sequence[int]]
"""For each item, the tokens of its texts."""


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
