"""Masking of tokens and of whole words: an exact share of the ordinary tokens of each sequence is chosen.

    batch = corrupt(batch, MaskingConfig(), vocabulary=…, seed=1, epoch=0, items=…)      # adds targets[MaskedTokens]

`items` names each sequence; its masks are a function of (seed, epoch, item) only, whatever batch it comes in.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Bits, Bools, Doubles, Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.ranges import Share
from larvatus.core.rng import random_bits
from larvatus.data.corruption.replacement import CorruptionInput, HiddenTokens, ReplacementConfig

_TWO_32 = float(1 << 32)
_PLACES = 1 << 16  # sequences, and tokens, that 16 bits each can tell apart


class MaskingConfig(ReplacementConfig, tag_field="type", tag="tokens"):
    """Masking of tokens (Devlin et al. 2019, §3.1)."""

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
    """Masking for a generator (ELECTRA, Clark et al. 2020, §2): hidden tokens, and for each the draw for a sample.

        the chef [MASK] the meal        the corruption hides "cooked" and draws u for it
        the chef  ate   the meal        the generator puts the word at u of its distribution there
                                        (`models/objectives/linear_cross_entropy.py`)

    As in the authors' release 85% of the chosen tokens are masked and 15% kept; all are sampled. The draw of a token
    belongs to (seed, epoch, item, place), so a sample depends only on the generator's weights and the sequence, not on
    the batch, the worker, the rank or where a run resumed.
    """

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


class WholeWordConfig(ReplacementConfig, tag_field="type", tag="whole-words"):
    """Whole-word masking (BERT's release of May 2019): all subwords of a word are chosen together.

        words in random order, laid end to end on a circle of T tokens        |chan·ges|the|un·be·liev·able|of|…
        a window of rate · T tokens of it, from a random place on                  └──────────────────┘
        hidden: the words that begin in the window                                  the, un·be·liev·able

    A word begins in the window with probability rate, however many subwords it has: the expected number of hidden
    tokens is exactly rate · T, and a sequence misses it by less than its longest word (systematic sampling, Madow
    1949). The release takes words in random order while they fit a budget, which passes over words of many subwords in
    short sequences. The window has at least one token. Each token of a chosen word is then hidden, replaced or kept by
    its own draw.
    """

    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)

    def hide(self, text: CorruptionInput) -> HiddenTokens:
        ordinary_T = text.ordinary_T
        bits_4T = text.bits(ordinary_T)
        sequences_T, words_T = text.sequences_N[ordinary_T], text.tokens.words[ordinary_T]
        new_T = np.ones(len(ordinary_T), dtype=np.bool_)
        new_T[1:] = (sequences_T[1:] != sequences_T[:-1]) | (words_T[1:] != words_T[:-1])
        firsts = np.flatnonzero(new_T)  # [W] first token of each word, among the ordinary ones
        sizes = np.diff(firsts, append=len(ordinary_T))
        order = by_sequence_at_random(bits_4T[0, firsts], sequences_T[firsts])
        zeros_B = np.zeros_like(text.items)
        starts_B = random_bits(text.seed, "whole-words", text.epoch, items=text.items, draws=zeros_B)[0] / _TWO_32
        chosen = order[begins_in_window(sizes[order], sequences_T[firsts[order]], starts_B, rate=self.rate)]
        taken = np.zeros(len(firsts), dtype=np.bool_)
        taken[chosen] = True
        chosen_M = np.flatnonzero(np.repeat(taken, sizes))
        return HiddenTokens(places_M=ordinary_T[chosen_M], bits_3M=bits_4T[1:, chosen_M])


def begins_in_window(sizes: Ints, sequences: Ints, starts_B: Doubles, *, rate: float) -> Bools:
    """Which words begin in the window of their sequence: [W], in the order of its circle, and [B] in [0, 1) → [W].

    >>> begins_in_window(np.array([2, 1, 4, 1]), np.array([0, 0, 0, 0]), np.array([0.2]), rate=0.5).tolist()
    [False, True, True, False]
    """
    totals_B = np.bincount(sequences, weights=sizes, minlength=len(starts_B))
    windows_B = np.minimum(totals_B, np.maximum(1.0, rate * totals_B))
    before = edges(sizes)[:-1] - edges(totals_B.astype(np.int64))[sequences]  # tokens of the circle before each word
    far = (before - starts_B[sequences] * totals_B[sequences]) % totals_B[sequences]
    inside: Bools = far < windows_B[sequences]
    return inside
