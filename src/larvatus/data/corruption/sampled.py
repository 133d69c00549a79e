"""Masking for a generator (ELECTRA, Clark et al. 2020, §2): hidden tokens, and for each the draw that samples another.

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

from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.ranges import Share
from larvatus.data.corruption.masking import MaskingConfig
from larvatus.data.corruption.replacement import Hidden, Text


class SampledConfig(MaskingConfig, tag_field="type", tag="sampled"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens, ReplacedTokens)

    mask: Share = 0.85
    random: Share = 0.0
    keep: Share = 0.15

    def hide(self, text: Text) -> Hidden:
        hidden = super().hide(text)
        draws_N = np.zeros(text.tokens.size, dtype=np.int64)
        draws_N[hidden.places_M] = text.bits(hidden.places_M, "sample")[0]
        replaced = ReplacedTokens(labels=np.zeros_like(draws_N), draws=draws_N)
        return dataclasses.replace(hidden, targets={ReplacedTokens: replaced})
