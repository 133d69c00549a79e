"""Noise for denoising recipes (chapter §11.2): text with masks, substitutions, deletions, insertions and reorderings.

    original   [CLS] the  cat  sat  on   the         mat    [SEP]
    reorder    [CLS] the  sat  cat  on   the         mat    [SEP]      neighbours change places
    delete     [CLS] the  sat  cat  ·    the         mat    [SEP]      "on" goes
    insert     [CLS] the  sat  cat       the  blue   mat    [SEP]      a random word
    mask       [CLS] the  sat  cat       the  blue  [MASK]  [SEP]
    place        0    1    2    3         4    5      6       7
    origin       0    1    2    3         5   −1      6       7        the original place that a place stands for
    targets                cat  sat                  mat

Reordering comes first and leaves all places where they are; then units of the reordered text are masked, substituted
or deleted, each by a draw of its own, and others inserted after them. A place of the noisy text stands for a place of
the original (its origin), an inserted one for none. The targets are the original tokens of the origins whose token is
masked, substituted or one that came from elsewhere: an encoder says what stood there. A deleted token has no place to
be asked at, an inserted one no original: for a masked-lm head both are noise in the context. `add_noise` gives the
origins to whoever asks for more.

Masking and dropping words with a fixed probability are those of denoising autoencoders (Hill et al. 2016, §3.1; Lample
et al. 2018, §2.3); so is reordering, by which no word moves far: windows of a few neighbours are shuffled (`units.py`).

- A unit is a word or a token. Special tokens, and words with one inside, are never touched or moved.
- What is left of a stretch of text between special tokens is never nothing: where all of it would be deleted, the unit
  with the largest random number stays.
- An inserted unit stands after another, has as many tokens as that one, and is a word of its own. A sequence never
  grows beyond the limit: where not all insertions fit, they are taken in random order while they do. Recipes pack
  their text a little shorter (`text_length`), so that nearly all of them fit.
- Words of the noisy text are runs of tokens of one original word, counted again; segments are those of the origins.

All choices hang on (seed, epoch, item, place), whatever batch a sequence comes in. N tokens before, Z after; U units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from larvatus.core.arrays import Bits, Bools, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.ranges import Neighbours, Share
from larvatus.core.settings import Settings
from larvatus.data.corruption.masking import by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput, MaskVocabulary, sample_tokens
from larvatus.data.corruption.units import Units, shuffle_units, take_fitting

INSERTED = -1
"""The origin of a token that has none."""
_TWO_32 = float(1 << 32)


class NoiseConfig(Settings, path="corruption.", error=RecipeError, tag_field="type", tag="noise"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)

    mask: Share = 0.15
    """Share of ordinary tokens that become the mask token."""
    substitute: Share = 0.0
    """Share that become a random token."""
    delete: Share = 0.0
    """Share that go."""
    insert: Share = 0.0
    """Random tokens added, as a share of those that are there."""
    reorder: Share = 0.0
    """Share that change places with their neighbours."""
    window: Neighbours = 3
    """How many neighbouring units change places among each other; 2 swaps neighbours."""
    units: Literal["words", "tokens"] = "words"
    """What each draw decides for: a whole word, or a token."""
    replacement: Literal["unigram", "uniform"] = "unigram"
    """How random tokens are drawn: by their frequency in the training text, or all alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (total := self.mask + self.substitute + self.delete) > 1.0 + 1e-6:
            raise RecipeError(f"corruption.mask + substitute + delete = {total:g} must be at most 1; lower one of them")
        if self.rate == 0.0:
            raise RecipeError(
                "noise that only deletes and inserts leaves no place with something to predict; set corruption.mask, "
                "corruption.substitute or corruption.reorder above 0"
            )

    @property
    def rate(self) -> float:
        """Share of ordinary tokens that are predicted, on average."""
        untouched = max(0.0, 1.0 - self.mask - self.substitute - self.delete)
        return self.mask + self.substitute + untouched * self.reorder

    @property
    def knows_lengths(self) -> bool:
        """Whether `lengths` says how long sequences are afterwards: not where that is a matter of chance."""
        return not (self.insert or self.delete)

    @property
    def needs_mask(self) -> bool:
        """Whether the vocabulary must have a mask token."""
        return self.mask > 0

    @property
    def why_nothing(self) -> str:
        """Why nothing of a whole block was hidden, and what to do."""
        return "no word was drawn; give more text, or raise corruption.mask"

    def may_hide(self, text: CorruptionInput) -> bool:
        """Nothing drawn in a whole block: at such shares there is nothing to learn from it either."""
        return False

    def text_length(self, length: int) -> int:
        """How long sequences are packed: what grows to `length` where insertions outdo deletions by two deviations.

        n tokens grow by n (insert − delete) on average, with a variance of about n (insert + delete).
        """
        if not self.insert:
            return length
        growth, spread = 1 + self.insert - self.delete, 2 * (self.insert + self.delete) ** 0.5
        root = 2 * length / (spread + (spread**2 + 4 * growth * length) ** 0.5)  # growth n + spread √n = length
        return max(min(8, length), min(length, int(root**2)))

    def lengths(self, lengths_B: Ints, texts_B: Ints, vocabulary: MaskVocabulary) -> Ints:
        """Without insertions and deletions none changes."""
        return lengths_B

    def check(self, room: int) -> None:
        """Any length will do."""

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The noisy tokens, and what stood at the places that are predicted."""
        noisy = add_noise(text, self)
        places_M = np.flatnonzero(noisy.asked)
        targets = MaskedTokens(places=places_M, ids=text.tokens.ids[noisy.origins[places_M]])
        return noisy.tokens, {MaskedTokens: targets}


@dataclass(frozen=True, eq=False)
class NoisyText:
    tokens: TokenBatch[Ints]
    origins: Ints  # [Z] the place in the original flat batch that each token stands for; INSERTED for none
    asked: Bools  # [Z] whether its token is masked, substituted or from elsewhere


def add_noise(text: CorruptionInput, config: NoiseConfig) -> NoisyText:
    """The noisy text, and the places of the original that its places stand for."""
    before = Units.of(text, config.units)
    units, source_N = before.in_order(shuffle_units(before, text, share=config.reorder, window=config.window))
    bits_4U = text.bits(units.firsts, "noise")
    share_U = np.where(units.ordinary, bits_4U[0] / _TWO_32, 2.0)  # no share is as large as 2: never touched
    edge = np.cumsum([config.mask, config.substitute, config.delete])
    masked_N = np.repeat(share_U < edge[0], units.sizes)
    substituted_N = np.repeat((share_U >= edge[0]) & (share_U < edge[1]), units.sizes)
    deleted_U = _leave_some((share_U >= edge[1]) & (share_U < edge[2]), units, bits_4U[0])
    wanted_U = units.ordinary & (bits_4U[1] / _TWO_32 < config.insert)
    inserted_U = _within_limit(wanted_U, deleted_U, units, bits_4U[2], text)

    ids_N = text.tokens.ids[source_N]
    if text.vocabulary.mask_id is not None:
        ids_N = np.where(masked_N, text.vocabulary.mask_id, ids_N)
    if len(places := np.flatnonzero(substituted_N)):
        ids_N[places] = sample_tokens(text.bits(places, "noise/substitute")[:2], text.vocabulary, config.replacement)
    asked_N = masked_N | substituted_N | (source_N != np.arange(text.tokens.size))

    # each unit twice: as it stands, unless deleted; then what is inserted after it
    sizes_2U = np.stack([np.where(deleted_U, 0, units.sizes), np.where(inserted_U, units.sizes, 0)], axis=1).ravel()
    from_Z = np.repeat(np.repeat(units.firsts, 2), sizes_2U) + ranges(sizes_2U)
    half_Z = np.repeat(np.arange(len(sizes_2U)), sizes_2U)
    new_Z = half_Z % 2 == 1
    ids_Z = ids_N[from_Z]
    if len(places := np.flatnonzero(new_Z)):
        ids_Z[places] = sample_tokens(
            text.bits(from_Z[places], "noise/insert")[:2], text.vocabulary, config.replacement
        )
    lengths = np.bincount(text.sequences_N[from_Z], minlength=text.tokens.count)
    words_Z = np.where(new_Z, text.tokens.size + half_Z, text.tokens.words[source_N[from_Z]])
    tokens = TokenBatch(
        ids=ids_Z,
        lengths=lengths,
        positions=ranges(lengths),
        segments=text.tokens.segments[from_Z],
        words=_counted_anew(words_Z, lengths),
    )
    return NoisyText(tokens=tokens, origins=np.where(new_Z, INSERTED, from_Z), asked=asked_N[from_Z] & ~new_Z)


def _leave_some(deleted: Bools, units: Units, keys: Bits) -> Bools:
    """The units to delete, less one of each stretch that would have none left: [U] → [U]."""
    left = np.bincount(units.stretches[units.text & ~deleted], minlength=units.stretches.max(initial=0) + 1)
    doomed = np.flatnonzero(deleted & (left[units.stretches] == 0))
    if len(doomed):
        doomed = doomed[by_sequence_at_random(keys[doomed], units.stretches[doomed])]
        last = np.diff(units.stretches[doomed], append=-1) != 0
        deleted[doomed[last]] = False
    return deleted


def _within_limit(wanted: Bools, deleted: Bools, units: Units, keys: Bits, text: CorruptionInput) -> Bools:
    """The units after which another is inserted: those wanted, in random order, while there is room: [U] → [U]."""
    if text.limit is None or not wanted.any():
        return wanted
    gone = np.bincount(units.sequences[deleted], weights=units.sizes[deleted], minlength=text.tokens.count)
    room = text.limit - text.tokens.lengths + gone.astype(np.int64)
    asked = np.flatnonzero(wanted)
    asked = asked[by_sequence_at_random(keys[asked], units.sequences[asked])]
    taken = np.zeros_like(wanted)
    taken[asked] = take_fitting(units.sizes[asked], units.sequences[asked], room)
    return taken


def _counted_anew(words: Ints, lengths: Ints) -> Ints:
    """Words numbered from 0 in each sequence, a new one wherever the name changes: [Z] → [Z]."""
    real = words != NO_WORD
    new = real.copy()
    new[1:] &= (words[1:] != words[:-1]) | (ranges(lengths)[1:] == 0)
    seen = edges(new.astype(np.int64))  # [Z + 1] words begun before each token
    return np.where(real, seen[1:] - 1 - np.repeat(seen[edges(lengths)[:-1]], lengths), NO_WORD)
