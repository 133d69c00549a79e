"""Long texts: windows that overlap, each token taken from the window in which it sees most on either side.

The rule is that of BERT's question answering (Devlin et al. 2019, `run_squad.py`, *max context*): of all windows that
hold a token, the one with the largest min(tokens before it, tokens after it). Windows of one size are compared by how
near a token is to their middle, so the choice needs no table of all pairs. Nothing is ever cut off.

    >>> found = windows(10, size=6, overlap=2)
    >>> found.starts.tolist(), found.ends.tolist()
    ([0, 4], [6, 10])
    >>> found.chosen.tolist()                          # tokens 4 and 5 are in both: each goes where it sees more
    [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError


@dataclass(frozen=True, eq=False)
class Windows:
    """K windows over the T tokens of a text."""

    starts: Ints
    """[K] first token of each."""
    ends: Ints
    """[K] the token after its last."""
    chosen: Ints
    """[T] window to take each token from; never goes backwards."""

    def __len__(self) -> int:
        return len(self.starts)


def windows(total: int, *, size: int, overlap: int | None = None) -> Windows:
    """As few windows of `size` tokens as share at least `overlap` with their neighbour, evenly spread over the text.

    By default a quarter of a window is shared. A text that fits gives one window, an empty text an empty one.
    """
    overlap = size // 4 if overlap is None else overlap
    if size < 1:
        raise UsageError(f"a window must hold at least one token, not {size}")
    if not 0 <= overlap < size:
        raise UsageError(f"overlap must be from 0 to {size - 1}, less than the window of {size} tokens, not {overlap}")
    if total <= size:
        return Windows(np.zeros(1, np.int64), np.full(1, total, np.int64), np.zeros(total, np.int64))
    spare = total - size  # how far the last window begins
    count = -(-spare // (size - overlap)) + 1
    starts = np.arange(count, dtype=np.int64) * spare // (count - 1)
    # twice the middle of each window, so that all is whole numbers; a token goes to the nearest middle, or the earlier
    middles = 2 * starts + size - 1
    borders = (middles[:-1] + middles[1:]) / 2
    return Windows(starts, starts + size, np.searchsorted(borders, 2 * np.arange(total), side="left"))
