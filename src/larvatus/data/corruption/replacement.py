"""The base of all corruptions, and replacement: a chosen token is hidden, replaced at random, or kept.

    80%   my dog is hairy → my dog is [MASK]
    10%   my dog is hairy → my dog is apple          sampled by unigram frequency, or uniformly
    10%   my dog is hairy → my dog is hairy          predicted all the same

(Devlin et al. 2019, §3.1; chapter §11.2.1.) Each token has its own random number, which depends on (seed, epoch,
sequence, place in the sequence). A corruption that needs more than that (one number for a whole span) has its own
`hide`: see `spans.py`.

The share of hidden tokens may change over a run, from `first_rate` at its first step to `rate` at its last:

    [corruption]
    rate = 0.15              # at the last step, and of validation text at any time
    first_rate = 0.4         # at the first
    path = "cosine"          # in place of "linear"

The share belongs to a place in the run, which a worker knows of a block before anything of it is packed: blocks come in
an order that follows from seed and epoch, so the plan of the epoch tells how much text comes before one. How many
tokens that becomes once packed (special tokens, sentences repeated in pairs) is estimated from the block itself. So
neither workers nor a resume can change a share. A step ends where the next sequence does not fit, so the place is known
to about the share of a step that a sequence takes.

    >>> RunPosition(first=0, steps=100, tokens=1_000).after(50_000).places(np.array([500, 500, 1_000])).tolist()
    [0.5, 0.505, 0.51]

B sequences of a block, or of a part of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from larvatus.core.arrays import Bits, Bools, Doubles, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.ranges import PositiveShare, Share
from larvatus.core.rng import random_bits
from larvatus.core.settings import Settings

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
    """The step of the run at which the loader's begin: each phase has its own loader."""
    steps: int
    """Steps of the whole run."""
    tokens: int
    """Tokens of a step."""
    passed: int = 0
    """Tokens of the loader's steps before the sequences at hand, as many as they are expected to be. A whole number: a
    block, and a part of it that begins some tokens later, then have the very same places."""

    def after(self, tokens: int) -> RunPosition:
        """The same for sequences that come after `tokens` tokens."""
        return dataclasses.replace(self, passed=tokens)

    def places(self, lengths_B: Ints) -> Doubles:
        """Where in the run each sequence is read: [B], from 0 to 1."""
        before_B = self.passed + edges(lengths_B)[:-1]
        step_B = self.first + before_B / self.tokens
        places_B: Doubles = np.minimum(step_B / max(1, self.steps), 1.0)
        return places_B


_TWO_32 = float(1 << 32)


@dataclass(frozen=True, eq=False)
class MaskVocabulary:
    """What masking must know of a vocabulary."""

    mask_id: int | None
    """None where the vocabulary has no mask token: then nothing can be hidden behind one (`check_mask`)."""
    size: int
    special_ids: Collection[int]
    """Never chosen, never sampled."""
    counts: Ints | None = None
    """[V] how often each token occurs; needed to sample by frequency."""
    sentinels: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Tokens that replace masked spans, in the order in which they are used (`sentinels.py`)."""

    @cached_property
    def ordinary(self) -> Bools:
        """[V] whether a token may be chosen or sampled."""
        flags = np.ones(self.size, dtype=np.bool_)
        flags[list(self.special_ids)] = False
        if self.mask_id is not None:
            flags[self.mask_id] = False
        return flags

    @cached_property
    def ordinary_ids(self) -> Ints:
        ids = np.flatnonzero(self.ordinary)
        if not len(ids):
            raise RecipeError(
                "the vocabulary has nothing but special tokens to sample replacements from; train a larger one"
            )
        return ids

    @cached_property
    def cumulative(self) -> Ints:
        """[V] counts of ordinary tokens, summed up: the inverse of their distribution by `searchsorted`."""
        if self.counts is None:
            raise RecipeError(
                'corruption.replacement = "unigram" needs the counts kept with a vocabulary, and this one has none; '
                'set corruption.replacement = "uniform"'
            )
        if len(self.counts) != self.size:
            raise RecipeError(f"the vocabulary has {self.size} tokens but {len(self.counts)} counts; train it again")
        sums = np.cumsum(np.where(self.ordinary, self.counts, 0), dtype=np.int64)
        if not len(sums) or sums[-1] == 0:
            raise RecipeError('all counts of the vocabulary are 0; set corruption.replacement = "uniform"')
        return sums


@dataclass(frozen=True, eq=False)
class CorruptionInput:
    """A batch as corruption sees it: N tokens, T of them ordinary, and the random numbers of its B sequences."""

    tokens: TokenBatch[Ints]
    vocabulary: MaskVocabulary
    seed: int
    epoch: int
    items: Ints  # [B] names of the sequences
    limit: int | None = None  # tokens that no sequence may grow beyond

    @cached_property
    def ordinary_T(self) -> Ints:
        """Places of the tokens that may be hidden."""
        tokens = self.tokens
        return np.flatnonzero((tokens.words != NO_WORD) & self.vocabulary.ordinary[tokens.ids])

    @cached_property
    def sequences_N(self) -> Ints:
        """The sequence of each token."""
        return np.repeat(np.arange(self.tokens.count), self.tokens.lengths)

    @cached_property
    def places_N(self) -> Ints:
        """The place of each token in its sequence."""
        return ranges(self.tokens.lengths)

    def bits(self, places_M: Ints, purpose: str = "mask") -> Bits:
        """The four random numbers of each of some tokens, for one purpose: [M] → [4, M]."""
        items_M = self.items[self.sequences_N[places_M]]
        return random_bits(self.seed, purpose, self.epoch, items=items_M, draws=self.places_N[places_M])


@dataclass(frozen=True, eq=False)
class HiddenTokens:
    """What a way of choosing decided: M tokens, and what decides their replacements."""

    places_M: Ints
    """Places of the chosen tokens, ascending."""
    bits_3M: Bits
    """Random numbers of each token: one decides masked, replaced or kept; two choose the replacement."""
    targets: dict[type, Any] = field(default_factory=dict)
    """Targets in addition to the hidden tokens themselves."""


class CorruptionSettings(Settings, path="corruption.", error=RecipeError):
    """Base of the settings of all corruptions: the defaults of one that changes no length and needs no mask token."""

    gives: ClassVar[tuple[type, ...]] = ()
    """Targets that the corruption adds."""
    why_nothing: ClassVar[str] = "it has no ordinary tokens; give other text, or train a vocabulary on it"
    """Why nothing of a whole block can be hidden, and what to do."""

    @property
    def knows_lengths(self) -> bool:
        """Whether `lengths` gives the lengths of sequences afterwards: not if they are random."""
        return True

    @property
    def needs_mask(self) -> bool:
        """Whether the vocabulary must have a mask token."""
        return False

    def may_hide(self, text: CorruptionInput) -> bool:
        """Whether anything can be hidden at all, though it may not have been sampled."""
        return len(text.ordinary_T) > 0

    def text_length(self, length: int) -> int:
        """How long sequences are packed so that they have at most `length` tokens afterwards: by default none grows."""
        return length

    def lengths(self, lengths_B: Ints, texts_B: Ints, vocabulary: MaskVocabulary) -> Ints:
        """How long sequences are afterwards, by default as before; `texts_B` counts tokens between special tokens."""
        return lengths_B

    def check(self, room: int) -> None:
        """Refuse a recipe whose sequences, of at most `room` tokens of text, are too short; by default none is."""

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The corrupted tokens, and the targets."""
        raise NotImplementedError


class ReplacementConfig(CorruptionSettings):
    """The settings that all ways of choosing tokens share."""

    why_nothing: ClassVar[str] = "it has no word of ordinary tokens; give other text, or train a vocabulary on it"

    rate: PositiveShare = 0.15
    """Share of a sequence's ordinary tokens that are chosen; above 0, or there would be nothing to learn."""
    mask: Share = 0.8
    """Share of the chosen that become the mask token."""
    random: Share = 0.1
    """Share that become a random token."""
    keep: Share = 0.1
    """Share that stay as they are."""
    replacement: Literal["unigram", "uniform"] = "unigram"
    """How random tokens are sampled: by their frequency in the training text, or uniformly."""
    first_rate: PositiveShare | UnsetType = UNSET
    """Share at the first step of a run, from which it goes to `rate` at the last; unset: `rate` from first to last.
    Held-out text always has `rate`."""
    path: Path | UnsetType = UNSET
    """How it goes there: linear, as where this is unset, or by half a cosine, slowly at both ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is not UNSET and self.first_rate is UNSET:
            raise RecipeError(
                "corruption.path is how the rate changes from first_rate to rate; set corruption.first_rate, too"
            )
        total = self.mask + self.random + self.keep
        if abs(total - 1.0) > 1e-6:
            rest = 1.0 - self.mask - self.random
            way_out = f"set corruption.keep = {rest:g}" if rest >= 0 else "lower corruption.mask or corruption.random"
            raise RecipeError(f"corruption.mask + random + keep = {total:g} must be 1; {way_out}")

    @property
    def shares(self) -> dict[str, float]:
        """The shares that a run begins and ends with, by the name of their setting."""
        first = {} if self.first_rate is UNSET else {"corruption.first_rate": self.first_rate}
        return {"corruption.rate": self.rate, **first}

    def at(self, place: float) -> Self:
        """The same with the share of a place in a run, from 0 to 1, throughout."""
        if self.first_rate is UNSET:
            return self
        path: Path = "linear" if self.path is UNSET else self.path
        share = share_at(place, first=self.first_rate, last=self.rate, path=path)
        return msgspec.structs.replace(self, rate=share, first_rate=UNSET, path=UNSET)

    @property
    def needs_mask(self) -> bool:
        return self.mask > 0

    def choose(self, keys: Bits, sequences: Ints, words: Ints, *, count: int) -> Ints:
        """Which of the ordinary tokens are predicted: see `MaskingConfig`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `choose` nor `hide`")

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The tokens with the chosen ones hidden, replaced or kept, and the targets."""
        hidden, tokens = self.hide(text), text.tokens
        places_M = hidden.places_M
        ids = tokens.ids.copy()
        ids[places_M] = replace_tokens(tokens.ids[places_M], hidden.bits_3M, self, text.vocabulary)
        masked = MaskedTokens(places=places_M, ids=tokens.ids[places_M])
        return replace(tokens, ids=ids), {MaskedTokens: masked, **hidden.targets}

    def hide(self, text: CorruptionInput) -> HiddenTokens:
        """The tokens that `choose` selects, each with its own random numbers."""
        ordinary_T = text.ordinary_T
        bits_4T = text.bits(ordinary_T)
        sequences_T, words_T = text.sequences_N[ordinary_T], text.tokens.words[ordinary_T]
        chosen_T = np.zeros(len(ordinary_T), np.bool_)
        chosen_T[self.choose(bits_4T[0], sequences_T, words_T, count=text.tokens.count)] = True
        chosen_M = np.flatnonzero(chosen_T)
        return HiddenTokens(places_M=ordinary_T[chosen_M], bits_3M=bits_4T[1:, chosen_M])


def sample_tokens(bits: Bits, vocabulary: MaskVocabulary, how: Literal["unigram", "uniform"]) -> Ints:
    """One random ordinary token for each pair of 32-bit numbers: [2, M] → [M]."""
    uniform_M = ((bits[0] << np.uint64(21)) | (bits[1] >> np.uint64(11))).astype(np.float64) / float(1 << 53)
    if how == "uniform":
        alike: Ints = vocabulary.ordinary_ids[(uniform_M * len(vocabulary.ordinary_ids)).astype(np.int64)]
        return alike
    sums = vocabulary.cumulative
    drawn: Ints = np.searchsorted(sums, (uniform_M * int(sums[-1])).astype(np.int64), side="right")
    return drawn


def replace_tokens(ids: Ints, bits: Bits, config: ReplacementConfig, vocabulary: MaskVocabulary) -> Ints:
    """The tokens that replace the chosen ones: [M] and three random numbers each, [3, M] → [M]."""
    share = bits[0] / _TWO_32
    out = ids.copy() if vocabulary.mask_id is None else np.where(share < config.mask, vocabulary.mask_id, ids)
    at_random = np.flatnonzero((share >= config.mask) & (share < config.mask + config.random))
    if len(at_random):
        out[at_random] = sample_tokens(bits[1:, at_random], vocabulary, config.replacement)
    return out
