"""Masking of tokens (Devlin et al. 2019, §3.1): of each sequence, an exact share of its ordinary tokens is chosen.

    batch = corrupt(batch, MaskingConfig(), vocabulary=…, seed=1, epoch=0, items=…)      # adds targets[MaskedTokens]

`items` names each sequence; its masks are a function of (seed, epoch, item) alone, whatever batch it comes in.

Masking for a generator (ELECTRA, Clark et al. 2020, §2): hidden tokens, and for each the draw that samples another.

    the chef [MASK] the meal        the corruption hides "cooked" and draws u for it
    the chef  ate   the meal        the generator puts the word at u of its distribution (see
    `models/objectives/linear_cross_entropy.py`)

Tokens are chosen as in `masking.py`. As in the authors' release 85% of them are masked and 15% kept; all are sampled.
The draw of a token belongs to (seed, epoch, item, place) like everything else here, so a sample depends on the
generator's weights and the sequence alone, not on the batch, the worker, the rank or where a run was resumed.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Bits, Ints
from larvatus.core.batch import ranges
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.ranges import Share
from larvatus.data.corruption.replacement import CorruptionInput, HiddenTokens, ReplacementConfig

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


class SampledConfig(MaskingConfig, tag_field="type", tag="sampled"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens, ReplacedTokens)

    mask: Share = 0.85
    random: Share = 0.0
    keep: Share = 0.15

    def hide(self, text: CorruptionInput) -> HiddenTokens:
        hidden = super().hide(text)
        draws_N = np.zeros(text.tokens.size, dtype=np.int64)
        draws_N[hidden.places_M] = text.bits(hidden.places_M, "sample")[0]
        replaced = ReplacedTokens(labels=np.zeros_like(draws_N), draws=draws_N)
        return dataclasses.replace(hidden, targets={ReplacedTokens: replaced})
