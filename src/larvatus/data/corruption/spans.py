"""Masking of spans (SpanBERT, Joshi et al. 2020, §3.1; chapter §11.5.1): runs of whole words are masked together.

    l ~ Geometric(0.2) over 1 … 10        P(l) = p (1 − p)^(l−1) / (1 − (1 − p)^10), in words; mean 3.8
    s uniform among the places where l words may be masked
    80 / 10 / 10 decided once for the whole span

    masked = SpanCorruptionConfig(geometric=0.2, rate=0.15).hide(text)         # text: a CorruptionInput
    masked.places_M, masked.targets[SpanTargets]                               # masked tokens, and the edges of spans

The distribution of lengths, `law`, is renormalised over 1 … `longest`, as in the authors' release: it has their mean of
3.8, where min(l, 10) would have 4.5. The spans of a sequence are sampled one after another:

- A word may be masked if all its tokens are ordinary and the sequence has a token on either side of it. These W words
  are treated as a circle, where the first follows the last, so each of them is masked with the same probability. A span
  that crosses a special token, or continues from the last word to the first, becomes two.
- Spans neither overlap nor touch: there is a word between any two of them, so the tokens just outside a span, from
  which `models/objectives/span_boundary.py` predicts, are never masked. If there are not l free words in a row, l is
  the largest number that there is.
- Spans are sampled until rate · W − d words are masked. The last span usually exceeds that number; the random d
  corrects for it, so that rate · W words are masked on average and no span is cut to fit. It is the age of a renewal
  process whose steps are the lengths: P(d > x) = Σ_{l > x} (l − x) P(l) / Σ l P(l). Whether a span is sampled
  depends only on those before it, so lengths keep their distribution (Wald). A sequence misses rate · W by at most
  `longest` words. (In texts of a few words, 1 replaces rate · W.)
- No choice depends on the number of tokens of a word: a word of many subwords is masked as often as one of a single
  token, and the rate is that of tokens too. (The release has a budget of tokens, into which long words do not fit in
  short sequences.)

A recipe is refused when it is read if its full sequences cannot hold one span of mean length, or if spans that do not
touch cannot reach its rate. Another distribution of lengths is a config with its own `law`: see `NGramsConfig`.

The k-th span of a sequence depends on the random numbers of (seed, epoch, item, k), whatever batch it is in.

B sequences, W words that may be masked, S spans, A sequences not yet done, M masked tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Bits, Bools, Doubles, Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, SpanTargets
from larvatus.core.ranges import PositiveShare, Run
from larvatus.core.rng import random_bits
from larvatus.data.corruption.masking import budgets
from larvatus.data.corruption.replacement import CorruptionInput, HiddenTokens, ReplacementConfig

_TWO_32 = float(1 << 32)


class SpanMaskingConfig(ReplacementConfig):
    """The algorithm above; a subclass defines the distribution of span lengths, `law`."""

    gives: ClassVar[tuple[type, ...]] = (MaskedTokens, SpanTargets)

    longest: Run = 10
    """Words of the longest span."""

    @property
    def law(self) -> npt.NDArray[np.float64]:
        """P(l) for l = 1 … longest."""
        raise NotImplementedError(f"{type(self).__name__} does not define `law`")

    @property
    def decided_at_once(self) -> bool:
        """Whether one random number masks, replaces or keeps a whole span, instead of one for each token."""
        return True

    @property
    def mean(self) -> float:
        """Words of a span on average."""
        return float(self.law @ np.arange(1, self.longest + 1))

    def check(self, room: int) -> None:
        """Refuse a rate that spans cannot reach in sequences of `room` tokens, or that is less than one span.

        When no further span fits, there are at most two words between spans, so `mean / (mean + 2)` is always reached.
        """
        mean, most = self.mean, self.mean / (self.mean + 2)
        for name, rate in self.shares.items():
            budget = int(budgets(np.array([room]), rate)[0])
            if rate > most:
                raise RecipeError(
                    f"{name} = {rate:g} is more than spans of {mean:.1f} words (the mean) that do not touch "
                    f"are sure to hide; set it to at most {int(100 * most) / 100:g}, or raise corruption.longest"
                )
            if mean > budget:
                raise RecipeError(
                    f"{room} tokens of text at {name} = {rate:g} may hide {budget}, too few for a span of "
                    f"{mean:.1f} words (the mean); lengthen the phase, raise {name} or lower corruption.longest"
                )

    def may_hide(self, text: CorruptionInput) -> bool:
        return len(MaskableWords.of(text).firsts) > 0

    def hide(self, text: CorruptionInput) -> HiddenTokens:
        words = MaskableWords.of(text)
        spans = sample_spans(words, self, text).within_runs(words)
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
        return HiddenTokens(places_M=places_M, bits_3M=bits_3M, targets={SpanTargets: targets})


class SpanCorruptionConfig(SpanMaskingConfig, tag_field="type", tag="spans"):
    geometric: PositiveShare = 0.2
    """Parameter p of the distribution of lengths: the larger, the shorter the spans; 1 masks single words."""

    @property
    def law(self) -> npt.NDArray[np.float64]:
        """P(l) for l = 1 … longest."""
        weights = self.geometric * (1.0 - self.geometric) ** np.arange(self.longest)
        law: npt.NDArray[np.float64] = weights / weights.sum()
        return law


class NGramsConfig(SpanMaskingConfig, tag_field="type", tag="n-grams"):
    """Masking of n-grams (ALBERT, Lan et al. 2020, §3.1): runs of up to three whole words.

        p(n) = (1/n) / Σ_k (1/k) over 1 … 3         0.545, 0.273, 0.182, in words; mean 1.64

    The paper does not say whether 80/10/10 is decided once for an n-gram or for each of its tokens. The authors'
    release decides for each token, and so does the default here.
    """

    longest: Run = 3
    """Words of the longest n-gram."""
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


@dataclass(frozen=True, eq=False)
class MaskableWords:
    """The words that may be masked, in the order of the text."""

    firsts: Ints  # [W] where each begins in the flat batch
    ends: Ints  # [W] where it ends
    sequences: Ints  # [W]
    edges: Ints  # [B + 1] where the words of each sequence begin

    @classmethod
    def of(cls, text: CorruptionInput) -> MaskableWords:
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
        sequences = text.sequences_N[firsts]
        each = np.bincount(sequences, minlength=tokens.count)
        return cls(firsts=firsts, ends=ends, sequences=sequences, edges=edges(each))

    def on_circle(self, starts: Ints, lengths: Ints, sequences: Ints) -> Ints:
        """The words of each span, `lengths` from its start; the first word of a sequence follows its last."""
        first, count = (np.repeat(x[sequences], lengths) for x in (self.edges[:-1], np.diff(self.edges)))
        places: Ints = first + (np.repeat(starts, lengths) - first + ranges(lengths)) % count
        return places


@dataclass(frozen=True, eq=False)
class MaskedSpans:
    """Spans as they are sampled, and again as runs of the text (`within_runs`)."""

    words: Ints  # [S] first word
    lengths: Ints  # [S] number of words
    bits: Bits  # [S] random number that decides to mask, replace or keep
    rounds: Ints  # [S] number of spans that its sequence had before

    def within_runs(self, words: MaskableWords) -> MaskedSpans:
        """The spans in the order of the text, each split where its words are not next to each other."""
        each = words.on_circle(self.words, self.lengths, words.sequences[self.words])
        span = np.repeat(np.arange(len(self.words)), self.lengths)
        in_order = np.argsort(each)
        each, span = each[in_order], span[in_order]
        new = np.ones(len(each), dtype=np.bool_)
        new[1:] = (span[1:] != span[:-1]) | (words.firsts[each[1:]] != words.ends[each[:-1]])
        begins = np.flatnonzero(new)
        lengths = np.diff(begins, append=len(each))
        return MaskedSpans(each[begins], lengths, self.bits[span[begins]], self.rounds[span[begins]])


def sample_spans(words: MaskableWords, config: SpanMaskingConfig, text: CorruptionInput) -> MaskedSpans:
    """The spans of all sequences, on their circles: a round samples one for each sequence that is not done."""
    sums = np.cumsum(config.law)
    free = np.minimum(np.diff(words.edges)[words.sequences], config.longest)  # [W] free words in a row from each on
    remaining = _words_to_hide(words, config, text)
    sampled: list[MaskedSpans] = []
    while len(fit := np.flatnonzero((free > 0) & (remaining[words.sequences] > 0))):
        begins = np.flatnonzero(np.diff(words.sequences[fit], prepend=-1))
        sequences = words.sequences[fit[begins]]  # [A]
        number = np.full(len(sequences), len(sampled), dtype=np.int64)
        bits = random_bits(text.seed, "spans", text.epoch, items=text.items[sequences], draws=number)
        lengths = np.minimum(np.searchsorted(sums, bits[0] / _TWO_32, side="right") + 1, config.longest)
        lengths = np.minimum(lengths, np.maximum.reduceat(free[fit], begins))
        starts = fit[_pick(free[fit] >= np.repeat(lengths, np.diff(begins, append=len(fit))), begins, bits[1])]
        remaining[sequences] -= lengths
        sampled.append(MaskedSpans(starts, lengths, bits[2], number))
        _occupy(free, words, sampled[-1], longest=config.longest)
    none = np.empty(0, dtype=np.int64)
    sampled.append(MaskedSpans(none, none, none.astype(np.uint64), none))
    return MaskedSpans(*(np.concatenate([getattr(part, f.name) for part in sampled]) for f in fields(MaskedSpans)))


def _words_to_hide(words: MaskableWords, config: SpanMaskingConfig, text: CorruptionInput) -> Doubles:
    """rate · W − d, [B]: another span is sampled while fewer words of a sequence are masked."""
    count = text.tokens.count
    if config.rate == 0.0:
        return np.zeros(count)
    zeros = np.zeros(count, dtype=np.int64)
    share = random_bits(text.seed, "spans", text.epoch, items=text.items, draws=zeros)[3] / _TWO_32
    # P(l > x) for x in [0, 1), [1, 2) …: the density of d, times the mean length
    longer = 1.0 - np.cumsum(config.law) + config.law
    so_far = np.concatenate([[0.0], np.cumsum(longer)]) / longer.sum()
    since: Doubles = np.interp(share, so_far, np.arange(config.longest + 1))
    return np.maximum(1.0, config.rate * np.diff(words.edges)) - since


def _pick(good: Bools, begins: Ints, bits: Bits) -> Ints:
    """Sample one good element of each group uniformly: [F], and the start of the A groups → [A]."""
    so_far = np.cumsum(good)
    before: Ints = so_far[begins] - good[begins]
    count = np.append(before[1:], so_far[-1]) - before
    return np.searchsorted(so_far, before + 1 + ((bits * count.astype(np.uint64)) >> np.uint64(32)).astype(np.int64))


def _occupy(free: Ints, words: MaskableWords, spans: MaskedSpans, *, longest: int) -> None:
    """Mark the words of new spans and their neighbours as taken, in place: no other span may include them."""
    sequences = words.sequences[spans.words]
    back = np.full(len(sequences), longest + 1)
    before = words.on_circle(spans.words - longest - 1, back, sequences)  # up to the word before the span
    np.minimum.at(free, before, np.tile(np.arange(longest, -1, -1), len(sequences)))  # small circles: some come twice
    free[words.on_circle(spans.words, spans.lengths + 1, sequences)] = 0
