"""Noise for denoising recipes (chapter §11.2): text with masks, substitutions, deletions, insertions and reorderings.

    original   [CLS] the  cat  sat  on   the         mat    [SEP]
    reorder    [CLS] the  sat  cat  on   the         mat    [SEP]      neighbours change places
    delete     [CLS] the  sat  cat  ·    the         mat    [SEP]      "on" goes
    insert     [CLS] the  sat  cat       the  blue   mat    [SEP]      a random word
    mask       [CLS] the  sat  cat       the  blue  [MASK]  [SEP]
    place        0    1    2    3         4    5      6       7
    origin       0    1    2    3         5   −1      6       7        the original position of a position
    targets                cat  sat                  mat

Reordering comes first and leaves all places where they are; then units of the reordered text are masked, substituted
or deleted, each by its own random number, and others inserted after them. A place of the noisy text has a place of the
original as its origin, an inserted one has none. The targets are the original tokens of the origins whose token is
masked, substituted or moved: an encoder predicts the original token. A deleted token has no place to be predicted at,
an inserted one no original: for a masked-lm head both are noise in the context. `add_noise` returns the origins to
callers that need them.

Masking and dropping words with a fixed probability are those of denoising autoencoders (Hill et al. 2016, §3.1; Lample
et al. 2018, §2.3); so is reordering, by which no word moves far: windows of a few neighbours are shuffled.

- A unit is a word or a token. Special tokens, and words with one inside, are never touched or moved.
- What is left of a stretch of text between special tokens is never nothing: where all of it would be deleted, the unit
  with the largest random number stays.
- An inserted unit follows another, has as many tokens as that one, and is a word of its own. A sequence never
  grows beyond the limit: where not all insertions fit, they are taken in random order while they do. Recipes pack
  their text a little shorter (`text_length`), so that nearly all of them fit.
- Words of the noisy text are runs of tokens of one original word, counted again; segments are those of the origins.

All choices depend on (seed, epoch, item, place), whatever batch a sequence comes in. N tokens before, Z after; U units.
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
from larvatus.core.rng import random_bits
from larvatus.data.corruption.masking import by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput, CorruptionSettings, sample_tokens

INSERTED = -1
"""The origin of a token that has none."""
_TWO_32 = float(1 << 32)


@dataclass(frozen=True, eq=False)
class Units:
    """What noise acts on: words or single tokens, special tokens among them, end to end."""

    firsts: Ints  # [U] where each begins in the flat batch
    sizes: Ints  # [U] its tokens
    sequences: Ints  # [U]
    ordinary: Bools  # [U] all of its tokens may be touched
    stretches: Ints  # [U] the run of text between special tokens that it belongs to
    text: Bools  # [U] text, not a special token

    @classmethod
    def of(cls, text: CorruptionInput, kind: Literal["words", "tokens"]) -> Units:
        tokens = text.tokens
        new_N = text.places_N == 0
        apart_N = tokens.words == NO_WORD
        stretches_N = np.cumsum(new_N | apart_N)
        if kind == "words":
            new_N[1:] |= (tokens.words[1:] != tokens.words[:-1]) | apart_N[1:]
        else:
            new_N[:] = True
        firsts = np.flatnonzero(new_N)
        good_N = np.zeros(tokens.size, dtype=np.bool_)
        good_N[text.ordinary_T] = True
        return cls(
            firsts=firsts,
            sizes=np.diff(firsts, append=tokens.size),
            sequences=text.sequences_N[firsts],
            ordinary=np.logical_and.reduceat(good_N, firsts) if len(firsts) else good_N,
            stretches=stretches_N[firsts],
            text=~apart_N[firsts],
        )

    def in_order(self, order: Ints) -> tuple[Units, Ints]:
        """The units after a shuffle within runs of ordinary ones, and where each token comes from: [U] → units, [N]."""
        sizes = self.sizes[order]
        source_N = np.repeat(self.firsts[order], sizes) + ranges(sizes)
        shuffle_units = Units(edges(sizes)[:-1], sizes, self.sequences, self.ordinary, self.stretches, self.text)
        return shuffle_units, source_N


def shuffle_units(units: Units, text: CorruptionInput, *, share: float, window: int) -> Ints:
    """Which unit comes where: [U], a permutation that moves about `share` of the ordinary units.

    Runs of ordinary units are cut into windows of `window` units, from a random place of the first one on. A window
    is chosen with probability `share`; its units then change places in one random cycle, so that each of them moves,
    by less than `window` units. Two units swap (Hill et al. 2016); a window with a single unit stays.
    """
    order = np.arange(len(units.firsts))
    movable_R = np.flatnonzero(units.ordinary)
    if not share or not len(movable_R):
        return order
    sequences_R = units.sequences[movable_R]
    new_R = np.ones(len(movable_R), dtype=np.bool_)
    new_R[1:] = (np.diff(movable_R) > 1) | (np.diff(sequences_R) > 0)
    runs = np.diff(np.flatnonzero(new_R), append=len(movable_R))
    zeros_B = np.zeros_like(text.items)
    phase_B = random_bits(text.seed, "noise/windows", text.epoch, items=text.items, draws=zeros_B)[0]
    phase_B = ((phase_B * np.uint64(window)) >> np.uint64(32)).astype(np.int64)
    begins = np.flatnonzero(new_R | ((ranges(runs) + phase_B[sequences_R]) % window == 0))
    sizes = np.diff(begins, append=len(movable_R))
    bits_4R = text.bits(units.firsts[movable_R], "noise/order")
    chosen = (bits_4R[0, begins] / _TWO_32 < share) & (sizes > 1)

    moved_M = np.flatnonzero(np.repeat(chosen, sizes))
    sizes = sizes[chosen]
    cycle_M = movable_R[moved_M[by_sequence_at_random(bits_4R[1, moved_M], np.repeat(np.arange(len(sizes)), sizes))]]
    follows_M = np.arange(len(cycle_M)) + 1
    follows_M[np.cumsum(sizes) - 1] -= sizes  # the last of a window is followed by its first
    order[cycle_M] = cycle_M[follows_M]
    return order


def take_fitting(sizes: Ints, sequences: Ints, room: Ints) -> Bools:
    """Go through the units of each sequence in order, take each one that still fits its room: [W] → [W].

    All sequences go at once. A round takes the longest run of units that fit, then drops those that no longer can:
    room only shrinks, so what does not fit now never will. The first one left always fits, so few rounds are needed.
    """
    taken = np.zeros(len(sizes), dtype=np.bool_)
    left, open_units = room.copy(), np.flatnonzero(sizes <= room[sequences])
    while len(open_units):
        size, sequence = sizes[open_units], sequences[open_units]
        so_far = np.cumsum(size)
        begins = np.ones(len(size), dtype=np.bool_)
        begins[1:] = sequence[1:] != sequence[:-1]
        before = np.repeat((so_far - size)[begins], np.diff(np.flatnonzero(begins), append=len(size)))
        fits = so_far - before <= left[sequence]
        taken[open_units[fits]] = True
        left -= np.bincount(sequence, weights=np.where(fits, size, 0), minlength=len(left)).astype(np.int64)
        open_units = open_units[~fits & (size <= left[sequence])]
    return taken


class NoiseConfig(CorruptionSettings, tag_field="type", tag="noise"):
    gives: ClassVar[tuple[type, ...]] = (MaskedTokens,)
    why_nothing: ClassVar[str] = "no word was selected; give more text, or raise corruption.mask"

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
    """How random tokens are sampled: by their frequency in the training text, or uniformly."""

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
        return not (self.insert or self.delete)

    @property
    def needs_mask(self) -> bool:
        return self.mask > 0

    def may_hide(self, text: CorruptionInput) -> bool:
        """Nothing sampled in a whole block: at such shares there is nothing to learn from it either."""
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

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The noisy tokens, and the original tokens at the positions that are predicted."""
        noisy = add_noise(text, self)
        places_M = np.flatnonzero(noisy.asked)
        targets = MaskedTokens(places=places_M, ids=text.tokens.ids[noisy.origins[places_M]])
        return noisy.tokens, {MaskedTokens: targets}


@dataclass(frozen=True, eq=False)
class NoisyText:
    tokens: TokenBatch[Ints]
    origins: Ints  # [Z] the place in the original flat batch of each token; INSERTED for none
    asked: Bools  # [Z] whether its token is masked, substituted or from elsewhere


def add_noise(text: CorruptionInput, config: NoiseConfig) -> NoisyText:
    """The noisy text, and the original position of each of its positions."""
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

    # each unit twice: itself, unless deleted; then what is inserted after it
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
