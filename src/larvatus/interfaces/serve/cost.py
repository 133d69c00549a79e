"""The cost of a request, estimated before it is queued: tokens that encoders compute, numbers in the response.

    RequestCost(windowed(1_000, reach=512), numbers=512)
    Limits(tokens=32_768, numbers=2_097_152).allow(cost)

An operation estimates the cost of an item from the number of tokens of its texts (`Operation.estimate`): masked copies,
beams and overlapping windows count each time they are read, layers and vectors as the numbers in the response. A text
has at most one token per byte: a request that is cheap by its bytes is not tokenised for this.
"""

from __future__ import annotations

from dataclasses import dataclass

SPECIAL = 3
"""Most special tokens of a window."""


@dataclass(frozen=True)
class RequestCost:
    tokens: int
    """Tokens computed, masked copies and beams included."""
    numbers: int = 0
    """Numbers in the response."""

    def __add__(self, other: RequestCost) -> RequestCost:
        return RequestCost(self.tokens + other.tokens, self.numbers + other.numbers)


@dataclass(frozen=True)
class RequestLimits:
    tokens: int
    numbers: int
    timeout: float = 0.0
    """Seconds of a request, if `tokens` is what can be computed in that time; else 0."""

    def allow(self, cost: RequestCost) -> bool:
        return cost.tokens <= self.tokens and cost.numbers <= self.numbers


def windowed(tokens: int, *, reach: int, overlap: int | None = None, shared: int = 0) -> int:
    """Tokens computed for a text that is read in overlapping windows, each with `shared` other tokens.

    >>> windowed(100, reach=512), windowed(1_000, reach=503, overlap=0), windowed(1_000, reach=503, overlap=400)
    (100, 1000, 3000)
    """
    capacity = max(1, reach - SPECIAL)
    if tokens + shared <= capacity:
        return tokens + shared
    size = max(1, capacity - shared)
    step = max(1, size - (size // 4 if overlap is None else overlap))
    windows = 1 + -(-max(0, tokens - size) // step)
    return windows * min(capacity, size + shared)
