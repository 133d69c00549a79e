"""Masking of spans (SpanBERT, Joshi et al. 2020, §3.1; chapter §11.5.1): runs of whole words are hidden together.

    l ~ Geometric(0.2) over 1 … 10        P(l) = p (1 − p)^(l−1) / (1 − (1 − p)^10), in words; mean 3.8
    s uniform among the places where l words may be hidden
    80 / 10 / 10 decided once for the whole span

The law is renormalised over 1 … `longest`, as in the authors' release: that has their mean of 3.8, where min(l, 10)
would have 4.5. Spans of a sequence are drawn one after another until its budget (as in `masking.budgets`) is spent:

- A word may be hidden if all its tokens are ordinary and a token stands on either side of it in the sequence.
- A span begins at a word that fits what is left of the budget, overlaps no earlier span and crosses no special token;
  it may touch another. Where no l such words stand together, l is the most that do.
- The budget is never exceeded. The span that would is cut before the word that does not fit, and is the last: so a
  sequence falls short by less than that one word. (The release cuts its last span too, inside a word if need be.)
- Where no word fits at all (its only words are longer than its budget), the sequence has no targets; a block of
  nothing else is refused. A recipe whose full sequences cannot hide one span of mean length is refused when read.

Another law over the same algorithm is a config with its own `law`: see `n_grams.py`.

The k-th span of a sequence hangs on the random numbers of (seed, epoch, item, k), whatever batch it comes in.

B sequences, W words that may be hidden, S spans, A sequences not yet done, M hidden tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from larvatus.batch import Ints, MaskedTokens, SpanTargets, edges, ranges
from larvatus.corrupt.masking import budgets
from larvatus.corrupt.replacement import Bits, Flags, Hidden, ReplacementConfig, Text
from larvatus.errors import RecipeError
from larvatus.rng import random_bits

_TWO_32 = float(1 << 32)


class SpanMaskingConfig(ReplacementConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all maskings of spans share: the algorithm above; a kind of span says by which law lengths are drawn."""

    gives: ClassVar[tuple[type, ...]] = (MaskedTokens, SpanTargets)

    longest: int = 10
    """No span has more words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.longest <= 1000:
            raise RecipeError(f"corruption.longest = {self.longest} must lie between 1 and 1000 words")

    @property
    def law(self) -> npt.NDArray[np.float64]:
        """P(l) for l = 1 … longest."""
        raise NotImplementedError(f"{type(self).__name__} does not say how long its spans are")

    @property
    def decided_at_once(self) -> bool:
        """Whether a whole span is hidden, replaced or kept by one draw, not each of its tokens by its own."""
        return True

    def check(self, room: int) -> None:
        """Where even an average span of one-token words overshoots the budget, what is hidden is not the law's."""
        mean, budget = float(self.law @ np.arange(1, self.longest + 1)), int(budgets(np.array([room]), self.rate)[0])
        if self.rate > 0 and mean > budget:
            raise RecipeError(
                f"{room} tokens of text at corruption.rate = {self.rate:g} may hide {budget}, too few for a span of "
                f"{mean:.1f} words (the mean); lengthen the phase, raise corruption.rate or lower corruption.longest"
            )

    def hide(self, text: Text) -> Hidden:
        words = Words.of(text, rate=self.rate)
        spans = draw_spans(words, self, text).in_order()
        first_S, end_S = words.firsts[spans.words], words.ends[spans.words + spans.lengths - 1]
        sizes_S = end_S - first_S
        place_M = ranges(sizes_S)
        left_M = np.repeat(first_S - 1, sizes_S)
        places_M = left_M + 1 + place_M
        targets = SpanTargets(
            left=left_M, right=np.repeat(end_S, sizes_S), place=place_M, ids=text.tokens.ids[places_M]
        )
        bits_3M = text.bits(places_M)[1:]
        if self.decided_at_once:
            bits_3M[0] = np.repeat(spans.bits, sizes_S)
        return Hidden(places_M=places_M, bits_3M=bits_3M, targets={SpanTargets: targets})


class SpansConfig(
    SpanMaskingConfig, tag_field="type", tag="spans", frozen=True, kw_only=True, forbid_unknown_fields=True
):
    geometric: float = 0.2
    """Parameter p of the span length's law: the larger, the shorter the spans; 1 hides single words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.geometric <= 1.0:
            raise RecipeError(f"corruption.geometric = {self.geometric} must lie above 0 and at most at 1")

    @property
    def law(self) -> npt.NDArray[np.float64]:
        """P(l) for l = 1 … longest."""
        weights = self.geometric * (1.0 - self.geometric) ** np.arange(self.longest)
        law: npt.NDArray[np.float64] = weights / weights.sum()
        return law


@dataclass(frozen=True, eq=False)
class Words:
    """The words that may be hidden, in the order of the text."""

    firsts: Ints  # [W] where each begins in the flat batch
    ends: Ints  # [W] where it ends
    sequences: Ints  # [W]
    rooms: Ints  # [W] how many words stand together from it on: itself and those after it, with nothing between
    budgets: Ints  # [B] tokens to hide

    @classmethod
    def of(cls, text: Text, *, rate: float) -> Words:
        tokens = text.tokens
        new_N = text.places_N == 0
        new_N[1:] |= tokens.words[1:] != tokens.words[:-1]
        starts = np.flatnonzero(new_N)
        good_N = np.zeros(tokens.size, dtype=np.bool_)
        good_N[text.ordinary_T] = True
        good_N[text.places_N == 0] = False  # a span has a token on either side
        good_N[edges(tokens.lengths)[1:][tokens.lengths > 0] - 1] = False
        good = np.logical_and.reduceat(good_N, starts) if len(starts) else np.empty(0, np.bool_)
        firsts, ends = starts[good], np.append(starts[1:], tokens.size)[good]
        last_of_run = np.ones(len(firsts), dtype=np.bool_)
        last_of_run[:-1] = firsts[1:] != ends[:-1]
        runs = np.diff(np.flatnonzero(last_of_run) + 1, prepend=0)
        sequences = text.sequences_N[firsts]
        present = np.bincount(sequences, weights=ends - firsts, minlength=tokens.count).astype(np.int64)
        rooms = np.repeat(runs, runs) - ranges(runs)
        return cls(firsts=firsts, ends=ends, sequences=sequences, rooms=rooms, budgets=budgets(present, rate))


@dataclass(frozen=True, eq=False)
class Spans:
    words: Ints  # [S] its first word
    lengths: Ints  # [S] its words
    bits: Bits  # [S] hidden, replaced or kept?
    rounds: Ints  # [S] how many spans its sequence had before

    def in_order(self) -> Spans:
        """As they stand in the text, not as they were drawn."""
        by = np.argsort(self.words)
        return Spans(self.words[by], self.lengths[by], self.bits[by], self.rounds[by])


def draw_spans(words: Words, config: SpanMaskingConfig, text: Text) -> Spans:
    """The spans of all sequences: a round draws one for each sequence that is not done."""
    sums = np.cumsum(config.law)
    sizes = words.ends - words.firsts
    before = edges(sizes)  # [W + 1] tokens of earlier words
    rooms, left = np.minimum(words.rooms, config.longest), words.budgets.copy()
    drawn: list[Spans] = []
    while len(fit := np.flatnonzero((rooms > 0) & (sizes <= left[words.sequences]))):
        begins = np.flatnonzero(np.diff(words.sequences[fit], prepend=-1))
        sequences = words.sequences[fit[begins]]  # [A]
        number = np.full(len(sequences), len(drawn), dtype=np.int64)
        bits = random_bits(text.seed, "spans", text.epoch, items=text.items[sequences], draws=number)
        lengths = np.minimum(np.searchsorted(sums, bits[0] / _TWO_32, side="right") + 1, config.longest)
        lengths = np.minimum(lengths, np.maximum.reduceat(rooms[fit], begins))
        starts = fit[_pick(rooms[fit] >= np.repeat(lengths, np.diff(begins, append=len(fit))), begins, bits[1])]
        whole = np.searchsorted(before, before[starts] + left[sequences], side="right") - 1 - starts  # words that fit
        taken = np.minimum(lengths, whole)
        hidden = before[starts + taken] - before[starts]
        left[sequences] = np.where(taken < lengths, 0, left[sequences] - hidden)  # a span that was cut is the last
        drawn.append(Spans(starts, taken, bits[2], number))
        _occupy(rooms, starts, taken, config.longest)
    none = np.empty(0, dtype=np.int64)
    drawn.append(Spans(none, none, none.astype(np.uint64), none))
    return Spans(*(np.concatenate([getattr(part, f.name) for part in drawn]) for f in fields(Spans)))


def _pick(good: Flags, begins: Ints, bits: Bits) -> Ints:
    """One of the good ones of each group, all alike: [F], and where the A groups begin → [A]."""
    so_far = np.cumsum(good)
    before: Ints = so_far[begins] - good[begins]
    count = np.append(before[1:], so_far[-1]) - before
    return np.searchsorted(so_far, before + 1 + ((bits * count.astype(np.uint64)) >> np.uint64(32)).astype(np.int64))


def _occupy(rooms: Ints, starts: Ints, lengths: Ints, longest: int) -> None:
    """Take the words of new spans away, in place: none may begin there, none before may reach there.

    Room never exceeds `longest`, nor does it reach into another sequence: only the words just before are touched.
    """
    back = np.arange(1, longest + 1)
    ahead = starts[:, None] - back  # [A, longest]
    distance = np.broadcast_to(back, ahead.shape)[ahead >= 0]
    ahead = ahead[ahead >= 0]
    np.minimum.at(rooms, ahead, distance)  # near the edge of a sequence the same word may come twice
    rooms[np.repeat(starts, lengths) + ranges(lengths)] = 0
