"""Masking of n-grams (ALBERT, Lan et al. 2020, §3.1): runs of up to three whole words, short ones more often.

    p(n) = (1/n) / Σ_k (1/k) over 1 … 3         0.545, 0.273, 0.182, in words; mean 1.64

An n-gram is a span with another law: where it may stand, how many there are, what happens in short texts and which
targets come with it are as in `spans.py`.

The paper does not say whether 80/10/10 is decided once for an n-gram or for each of its tokens. The authors' release
decides for each token, and so does the default here; `decision = "n-grams"` decides once, as SpanBERT does for spans.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.ranges import Run
from larvatus.data.corruption.spans import SpanMaskingConfig


class NGramsConfig(SpanMaskingConfig, tag_field="type", tag="n-grams"):
    longest: Run = 3
    """No n-gram has more words."""
    decision: Literal["tokens", "n-grams"] = "tokens"
    """Unit of one random decision (mask, replace or keep): a token, or a whole n-gram."""

    @property
    def law(self) -> npt.NDArray[np.float64]:
        """p(n) for n = 1 … longest."""
        weights = 1.0 / np.arange(1, self.longest + 1)
        law: npt.NDArray[np.float64] = weights / weights.sum()
        return law

    @property
    def decided_at_once(self) -> bool:
        return self.decision == "n-grams"
