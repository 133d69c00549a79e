"""All spans of up to L words of each sequence of a flat batch: S(x) of the chapter (§11.5.2), with j − i < L.

    >>> index = SpanIndex.of(torch.tensor([3, 1]), longest=2)       # two sequences, of three words and of one
    >>> index.first_M.tolist(), index.last_M.tolist()
    ([0, 0, 1, 1, 2, 3], [0, 1, 1, 2, 2, 3])

Spans stand in the order of their first words, short ones first. A sequence may hold words, at its end, that only end
spans and begin none: those of a window, which begin theirs in the next. W words, M spans, B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SpanIndex:
    each_W: Tensor
    """Spans that begin at each word."""
    before_W: Tensor
    """Spans that begin at an earlier word."""
    count: int
    """Spans in all (M)."""
    longest: int
    """Words of the longest span that there is; at most L."""

    @classmethod
    def of(cls, counts_B: Tensor, *, longest: int, starts_B: Tensor | None = None) -> SpanIndex:
        """From the words of each sequence, and how many of them, its first, begin spans (all where nothing is said)."""
        ends_B = counts_B.cumsum(0)
        first_B = ends_B - counts_B
        ends_W = torch.repeat_interleave(ends_B, counts_B)
        place_W = torch.arange(len(ends_W), device=counts_B.device)
        each_W = (ends_W - place_W).clamp(max=longest)
        if starts_B is not None:
            lowest_W = torch.repeat_interleave(first_B + starts_B, counts_B)
            each_W = torch.where(place_W < lowest_W, each_W, 0)
        before_W = each_W.cumsum(0) - each_W
        empty = len(each_W) == 0
        return cls(
            each_W=each_W,
            before_W=before_W,
            count=0 if empty else int(before_W[-1] + each_W[-1]),
            longest=0 if empty else int(each_W.max()),
        )

    @property
    def first_M(self) -> Tensor:
        """First word of each span."""
        words = torch.arange(len(self.each_W), device=self.each_W.device)
        return torch.repeat_interleave(words, self.each_W, output_size=self.count)

    @property
    def last_M(self) -> Tensor:
        """Last word of each span, itself in it."""
        first_M = self.first_M
        spans = torch.arange(self.count, device=first_M.device)
        return first_M + spans - self.before_W[first_M]

    def number(self, first: Tensor, last: Tensor) -> Tensor:
        """Which of the spans these are; −1 where they are none of them."""
        inside = (last >= first) & (last - first < self.each_W[first])
        return torch.where(inside, self.before_W[first] + last - first, -1)
