"""What a request will cost, estimated before it is queued: tokens that encoders compute, numbers of its answer.

    RequestCost(windowed(1_000, reach=512), numbers=512)
    Limits(tokens=32_768, numbers=2_097_152).allow(cost)

An operation says what an item costs whose texts have some number of tokens (`Operation.estimate`): masked copies, beams
and overlapping windows are counted as often as they are read, layers and vectors as the numbers that are answered. A
text has at most one token a byte: a request that is cheap by its bytes is not tokenised for this.
"""

from __future__ import annotations

from dataclasses import dataclass

SPECIAL = 3
"""Special tokens of a window, at most."""


@dataclass(frozen=True)
class RequestCost:
    tokens: int
    """Tokens computed, masked copies and beams included."""
    numbers: int = 0
    """Numbers in the answer."""

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
