"""Masking of tokens (Devlin et al. 2019, §3.1): of each sequence, an exact share of its ordinary tokens is chosen.

    batch = corrupt(batch, MaskingConfig(), vocabulary=…, seed=1, epoch=0, items=…)      # adds targets[MaskedTokens]

`items` names each sequence; its masks are a function of (seed, epoch, item) alone, whatever batch it comes in.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Bits, Ints
from larvatus.core.batch import ranges
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corruption.replacement import ReplacementConfig

_PLACES = 1 << 16  # sequences, and tokens, that 16 bits each can tell apart


class MaskingConfig(ReplacementConfig, tag_field="type", tag="tokens"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)

    def choose(self, keys: Bits, sequences: Ints, words: Ints, *, count: int) -> Ints:
        """Which of the ordinary tokens are predicted (their indices, in any order).

        keys, sequences, words [T]: of each ordinary token a random number, its sequence (of `count`), its word there.
        """
        order = by_sequence_at_random(keys, sequences)
        present = np.bincount(sequences, minlength=count)
        begins, wanted = np.cumsum(present) - present, budgets(present, self.rate)
        return order[np.repeat(begins, wanted) + ranges(wanted)]


def by_sequence_at_random(keys: Bits, sequences: Ints) -> Ints:
    """Indices sorted by sequence, and inside each by its random numbers: [T] → [T].

    Stable, so that even equal keys fall in an order that does not depend on the batch.
    """
    if len(keys) > _PLACES or int(sequences.max(initial=0)) >= _PLACES:
        order: Ints = np.argsort((sequences.astype(np.uint64) << np.uint64(32)) | keys, kind="stable")
        return order
    # sequence, random number and index in one number, which is sorted as it is: many times faster than `argsort`
    whole = sequences.astype(np.uint64)
    whole <<= np.uint64(32)
    whole |= keys
    whole <<= np.uint64(16)
    whole |= np.arange(len(keys), dtype=np.uint64)
    whole.sort()
    whole &= np.uint64(_PLACES - 1)
    return whole.view(np.int64)


def budgets(present: Ints, rate: float) -> Ints:
    """How many tokens of each sequence to predict: the rate's share, rounded, and at least one: [B] → [B]."""
    wanted: Ints = np.minimum(present, np.maximum(1, np.rint(present * rate).astype(np.int64)))
    return wanted
