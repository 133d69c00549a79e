"""Span corruption with sentinels (T5, Raffel et al. 2020, §3.1.4 and figure 2): a sentinel replaces each span.

    text      Thank you for inviting me to your party last week
    read      Thank you <X> me to your party <Y> week
    written   <X> for inviting <Y> last <Z>

The encoder reads the text without the spans, the decoder generates them: each sentinel with the tokens that it
replaces, and one more sentinel at the end. Both end as the text did (</s>). X, Y, Z are sentinels of the vocabulary in
their order, each used once per sequence. The numbers of masked tokens and of spans are not random, as in the authors'
code, so all sequences of n tokens keep the same length:

    hidden = round(rate · n)        spans = round(hidden / mean)

Where the spans are is random: hidden tokens are cut into that many runs, all ways alike, and so are those that stay;
the runs take turns, one that stays first. Random numbers depend on (seed, epoch, item, place).
N tokens before, Z after, M to write; B sequences.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from larvatus.core.arrays import Bools, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.core.ranges import Factor, ShareBetween
from larvatus.core.rng import random_bits
from larvatus.data.corruption.masking import by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput, CorruptionSettings, MaskVocabulary


class SentinelsConfig(CorruptionSettings, tag_field="type", tag="sentinels"):
    gives: ClassVar[tuple[type, ...]] = (DenoisedText,)
    why_nothing: ClassVar[str] = "its sequences have less than two tokens; give longer text"

    rate: ShareBetween = 0.15
    """Share of the tokens that are hidden."""
    mean: Factor = 3.0
    """Mean length of a span, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean < 1:
            raise RecipeError(f"corruption.mean = {self.mean:g}: a span has a token at least; set corruption.mean = 3")

    def may_hide(self, text: CorruptionInput) -> bool:
        return bool((_inner(text)[1] > 1).any())

    def counts(self, lengths: Ints) -> tuple[Ints, Ints]:
        """Tokens to hide, and in how many spans: [B] → [B], [B]. A sequence of one token stays as it is."""
        hidden = np.clip(np.rint(lengths * self.rate).astype(np.int64), 1, np.maximum(lengths - 1, 0))
        spans = np.maximum(np.rint(hidden / self.mean).astype(np.int64), np.minimum(hidden, 1))
        return hidden, np.minimum(spans, lengths - hidden)

    def text_length(self, length: int) -> int:
        """How long sequences are packed: the most that leave `length` tokens to read, one that closes among them.

        >>> SentinelsConfig().text_length(512)                    # as published: 568 tokens, and </s>
        569
        """
        before = np.arange(1, max(2, int(length / (1 - self.rate)) + 2))
        hidden, spans = self.counts(before)
        return int(before[before - hidden + spans + 1 <= max(length, 2)].max(initial=1)) + 1

    def lengths(self, lengths_B: Ints, texts_B: Ints, vocabulary: MaskVocabulary) -> Ints:
        """How long sequences are afterwards: a sentinel replaces each span."""
        hidden_B, spans_B = self._planned(texts_B, vocabulary)
        return lengths_B - hidden_B + spans_B

    def _planned(self, texts_B: Ints, vocabulary: MaskVocabulary) -> tuple[Ints, Ints]:
        hidden_B, spans_B = self.counts(texts_B)
        return hidden_B, np.minimum(spans_B, len(vocabulary.sentinels) - 1)  # in long sequences, longer spans

    def written(self, length: int) -> int:
        """Tokens to write where `length` are read: sentinels, the tokens they replace, and the closing sentinel."""
        hidden, spans = self.counts(np.array([self.text_length(length) - 1]))
        return int(hidden[0] + spans[0]) + 2

    def check_sentinels(self, sentinels: Ints) -> None:
        """Refuse a vocabulary without at least two."""
        if len(sentinels) < 2:
            raise RecipeError(
                'corruption "sentinels" needs a vocabulary with sentinels <extra_id_0>, <extra_id_1> …, and this one '
                'has none; set tokenizer.type = "unigram" and tokenizer.frame = "t5"'
            )

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The tokens with sentinels instead of spans, and the tokens that these replace."""
        self.check_sentinels(text.vocabulary.sentinels)
        firsts_B, lengths_B = _inner(text)
        hidden_B, spans_B = self._planned(lengths_B, text.vocabulary)
        hidden_N = np.zeros(text.tokens.size, np.bool_)
        places = np.repeat(firsts_B, lengths_B) + ranges(lengths_B)
        hidden_N[places] = sample_sentinel_spans(text, hidden_B, lengths_B - hidden_B, spans_B)
        return replaced_by_sentinels(text.tokens, hidden_N, text.vocabulary.sentinels)


def _inner(text: CorruptionInput) -> tuple[Ints, Ints]:
    """Where the text of each sequence begins, between the special tokens that dress it, and its tokens: [B], [B]."""
    tokens = text.tokens
    places_T = np.flatnonzero(tokens.words != NO_WORD)
    sequences_T = text.sequences_N[places_T]
    border = np.searchsorted(sequences_T, np.arange(tokens.count + 1))
    some = np.diff(border) > 0
    firsts, ends = edges(tokens.lengths)[:-1].copy(), edges(tokens.lengths)[:-1].copy()
    firsts[some] = places_T[border[:-1][some]]
    ends[some] = places_T[border[1:][some] - 1] + 1
    return firsts, ends - firsts


def sample_sentinel_spans(text: CorruptionInput, hidden_B: Ints, kept_B: Ints, spans_B: Ints) -> Bools:
    """Which tokens are hidden, of all inner tokens end to end: runs that stay and runs that go in turn."""
    stay = _cut_at_random(text, kept_B, spans_B, "sentinels/kept")
    go = _cut_at_random(text, hidden_B, spans_B, "sentinels/hidden")
    runs = np.stack([stay, go], 1).ravel()  # [2 S] of all sequences in order
    whole = np.where(spans_B > 0, hidden_B + kept_B, kept_B)
    hidden = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    out = np.zeros(int(whole.sum()), np.bool_)
    out[np.repeat(spans_B > 0, whole)] = hidden  # a sequence without spans stays as it is
    return out


def _cut_at_random(text: CorruptionInput, totals_B: Ints, parts_B: Ints, purpose: str) -> Ints:
    """The lengths of `parts` runs of one token or more that make up each total, all ways alike: [B] → [S]."""
    gaps_B = np.where(parts_B > 0, totals_B - 1, 0)  # places at which a run may end
    sequences = np.repeat(np.arange(len(gaps_B)), gaps_B)
    keys = random_bits(text.seed, purpose, text.epoch, items=text.items[sequences], draws=ranges(gaps_B))[0]
    order = by_sequence_at_random(keys, sequences)
    chosen = np.zeros(len(order), np.bool_)
    chosen[order[ranges(gaps_B) < np.repeat(parts_B - 1, gaps_B)]] = True
    ends = np.flatnonzero(chosen)
    cuts = ranges(gaps_B)[ends] + 1  # tokens before the cut
    per_part = np.zeros(int(parts_B.sum()), np.int64)  # where each run ends, in its sequence
    last = np.cumsum(parts_B)[parts_B > 0] - 1
    inner = np.ones(len(per_part), np.bool_)
    inner[last] = False
    per_part[inner] = cuts
    per_part[last] = totals_B[parts_B > 0]
    starts = np.concatenate([np.zeros(1, np.int64), per_part[:-1]])[: len(per_part)]
    starts[edges(parts_B)[:-1][parts_B > 0]] = 0
    lengths: Ints = per_part - starts
    return lengths


def replaced_by_sentinels(
    tokens: TokenBatch[Ints], hidden_N: Bools, sentinels: Ints
) -> tuple[TokenBatch[Ints], dict[type, Any]]:
    """Each run of hidden tokens becomes a sentinel; what is written are the runs, each after its sentinel.

    >>> thank_you = TokenBatch.of([[11, 12, 13, 14, 15, 1]], words=[[0, 1, 2, 3, 4, -1]])       # 1 closes
    >>> hidden = np.array([False, True, True, False, True, False])
    >>> read, targets = replaced_by_sentinels(thank_you, hidden, np.array([99, 98, 97]))
    >>> read.ids.tolist(), targets[DenoisedText].ids.tolist()
    ([11, 99, 14, 98, 1], [99, 12, 13, 98, 15, 97, 1])
    """
    sequences_N, places_N = np.repeat(np.arange(tokens.count), tokens.lengths), ranges(tokens.lengths)
    opens_N = hidden_N.copy()
    opens_N[1:] &= ~(hidden_N[:-1] & (places_N[1:] > 0))
    spans_B = np.bincount(sequences_N[opens_N], minlength=tokens.count)
    before_B = edges(spans_B)[:-1]
    number_N = np.cumsum(opens_N, dtype=np.int64) - np.repeat(before_B, tokens.lengths) - 1
    read = _read(tokens, hidden_N, opens_N, sentinels[np.maximum(number_N, 0)])

    closing_N = _closing(tokens) & np.repeat(spans_B > 0, tokens.lengths)
    width_N = opens_N.astype(np.int64) + hidden_N  # written for each token: it, where hidden, after its sentinel
    from_M = np.repeat(np.arange(tokens.size), width_N)
    opens_M = (ranges(width_N) == 0) & opens_N[from_M]
    spoken = np.where(opens_M, sentinels[np.maximum(number_N[from_M], 0)], tokens.ids[from_M])
    ended = np.flatnonzero(spans_B)  # sequences that one more sentinel ends
    parts: list[tuple[Ints, Ints]] = [
        (spoken, sequences_N[from_M]),
        (sentinels[spans_B[ended]], ended),
        (tokens.ids[closing_N], sequences_N[closing_N]),
    ]
    ids, sequences = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(sequences, kind="stable")
    lengths = np.bincount(sequences, minlength=tokens.count)
    return read, {DenoisedText: DenoisedText(ids=ids[order], lengths=lengths)}


def _read(tokens: TokenBatch[Ints], hidden_N: Bools, opens_N: Bools, sentinels_N: Ints) -> TokenBatch[Ints]:
    """What stays, with a sentinel where each span began; words are counted as they were."""
    stays_Z = np.flatnonzero(~hidden_N | opens_N)
    opens_Z = opens_N[stays_Z]
    sequences_N = np.repeat(np.arange(tokens.count), tokens.lengths)
    lengths = np.bincount(sequences_N[stays_Z], minlength=tokens.count)
    return TokenBatch(
        ids=np.where(opens_Z, sentinels_N[stays_Z], tokens.ids[stays_Z]),
        lengths=lengths,
        positions=ranges(lengths),
        segments=tokens.segments[stays_Z],
        words=np.where(opens_Z, NO_WORD, tokens.words[stays_Z]),
    )


def _closing(tokens: TokenBatch[Ints]) -> Bools:
    """The special tokens after the last token of text of each sequence."""
    text_N = tokens.words != NO_WORD
    so_far = np.cumsum(text_N)
    ends = edges(tokens.lengths)
    before_B = np.concatenate([np.zeros(1, np.int64), so_far])[ends[1:]]  # text up to the end of each sequence
    after_N: Bools = ~text_N & (so_far == np.repeat(before_B, tokens.lengths))
    return after_N
