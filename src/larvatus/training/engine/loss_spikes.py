"""Losses that leap: a few bad batches may undo hours of training, without being infinite.

    spikes = SpikeDetector()
    if (usual := spikes.look(loss)) is not None: …       # the loss is more than five times what it usually was

What to do about it is as for PaLM (Chowdhery et al., 2022): go back to a checkpoint from before, and leave out the data
between that and the leap; the same data elsewhere in training does no harm.
"""

from __future__ import annotations

import statistics
from collections import deque

FACTOR = 5.0
"""What the loss must be of the usual one to be a spike."""
MIN_RISE = 1.0
"""And how far above it, at least: small losses of small batches leap all the time."""
WINDOW = 64
"""Steps whose median is the usual loss."""
MIN_STEPS = 16
"""Steps that must have been seen before anything is usual."""
MAX_ROLLBACKS = 2
"""Rollbacks of one run, after which it ends."""


class SpikeDetector:
    """Told of each step's loss.

    >>> spikes = SpikeDetector()
    >>> [spikes.look(loss) for loss in (*[2.0] * 16, 9.0, 11.0)][-2:]
    [None, 2.0]
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=WINDOW)

    def look(self, loss: float) -> float | None:
        """The usual loss, where this one is a spike; it then counts for nothing."""
        if len(self._last) >= MIN_STEPS:
            usual = statistics.median(self._last)
            if loss > FACTOR * usual and loss > usual + MIN_RISE:
                return usual
        self._last.append(loss)
        return None
