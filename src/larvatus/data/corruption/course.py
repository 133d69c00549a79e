"""How much of the text is hidden as a run continues: from `first_rate` at its first step to `rate` at its last.

    [corruption]
    rate = 0.15              # at the last step, and of held-out text at any time
    first_rate = 0.4         # at the first
    path = "cosine"          # in place of "linear"

The share belongs to a place in the run, which a worker knows of a block before anything of it is packed: blocks of text
come in an order that follows from seed and epoch, so that how much text comes before one is known from the plan of its
epoch alone. What it becomes once packed (special tokens, sentences repeated in pairs) is taken from the block itself,
in which that is much as in those before. So neither workers nor a resume can change a share. A step ends where the next
sequence does not fit, so that the place is known to about the share of a step that a sequence takes.

    >>> RunPosition(first=0, steps=100, tokens=1_000).after(50_000).places(np.array([500, 500, 1_000])).tolist()
    [0.5, 0.505, 0.51]

B sequences of a block, or of a stretch of it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import edges

Path = Literal["linear", "cosine"]


def share_at(place: float, *, first: float, last: float, path: Path = "linear") -> float:
    """The share at a place of a run, from 0 (its first step) to 1 (its last).

    >>> [round(share_at(place, first=0.4, last=0.2), 2) for place in (0, 0.5, 1)]
    [0.4, 0.3, 0.2]
    """
    gone = place if path == "linear" else 0.5 * (1 - math.cos(math.pi * place))
    return first + (last - first) * gone


@dataclass(frozen=True)
class RunPosition:
    """Which steps of a run are made from the blocks of a loader, and how much of them came before a block."""

    first: int
    """The step of the run at which the loader's begin: phases have loaders of their own."""
    steps: int
    """Steps of the whole run."""
    tokens: int
    """Tokens of a step."""
    passed: int = 0
    """Tokens of the loader's steps before the sequences at hand, as many as they are expected to be. A whole number: a
    block, and a stretch of it that begins so many tokens later, then have the very same places."""

    def after(self, tokens: int) -> RunPosition:
        """The same for sequences that come after so many tokens."""
        return dataclasses.replace(self, passed=tokens)

    def places(self, lengths_B: Ints) -> Doubles:
        """Where in the run each sequence is read: [B], from 0 to 1."""
        before_B = self.passed + edges(lengths_B)[:-1]
        step_B = self.first + before_B / self.tokens
        places_B: Doubles = np.minimum(step_B / max(1, self.steps), 1.0)
        return places_B
