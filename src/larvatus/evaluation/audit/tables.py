"""Shares, intervals and spreads as the tables of an audit print them."""

from __future__ import annotations

from collections.abc import Sequence


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def between(low: float | None, high: float | None, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval as printed in tables.

    >>> between(0.4812, 0.5301), between(0.1, 0.25, digits=1, times=100)
    ('0.481–0.530', '10.0–25.0')
    """
    return "–" if low is None or high is None else f"{times * low:.{digits}f}–{times * high:.{digits}f}"


def signed_between(low: float, high: float, *, digits: int = 3, times: float = 1.0) -> str:
    """An interval of a difference: ``−1.2 to +3.4``."""
    return f"{times * low:+.{digits}f} to {times * high:+.{digits}f}"


def spread_note(what: str, values: Sequence[float], *, digits: int = 3, times: float = 1.0, sign: str = "") -> str:
    """A note on how a figure varies over samples of documents.

    >>> spread_note("AUC by loss", [0.52, 0.55, 0.531])
    'AUC by loss in 3 samples of training documents: 0.520 to 0.550 (0.520, 0.550, 0.531)'
    """
    said = [f"{times * value:{sign}.{digits}f}" for value in values]
    low, high = (f"{times * end(values):{sign}.{digits}f}" for end in (min, max))
    return f"{what} in {len(said)} samples of training documents: {low} to {high} ({', '.join(said)})"
