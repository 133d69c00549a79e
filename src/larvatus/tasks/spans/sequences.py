"""Texts for the scoring of spans: windows such that every span of up to L words is complete in exactly one of them.

    encoded = span_sequences(tokenizer, found, limit=512, longest=16)
    encoded.word_spans(sequences)                     # what the head needs of a batch of these sequences

A word's spans begin in the window where its first token sees most (maximum context); the words after the last of these
belong to the window too, as far as it reaches, since spans may end there.
S sequences, P (token, word) pairs, W words, G gold spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.targets import WordSpans
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.tasks.encoding.sequences import Sequences, SequenceWords, run_indices, word_sequences


@dataclass(frozen=True, eq=False)
class GoldSpans:
    """Training targets, sequence by sequence; words are counted from the first of their sequence."""

    counts: Ints  # [S] spans of each sequence
    first: Ints  # [G]
    last: Ints  # [G] itself in the span
    types: Ints  # [G]
    related: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    # [R, 3] heads (ascending), tails, counted from the first span of all, and labels; both are of one sequence


@dataclass(frozen=True, eq=False)
class SpanSequences:
    sequences: Sequences
    begins: Ints  # [S] number of each sequence's first word, counted from the first of its example

    @property
    def words(self) -> SequenceWords:
        assert self.sequences.words is not None
        return self.sequences.words

    def word_spans(self, chosen: Ints, gold: GoldSpans) -> WordSpans[Ints]:
        """The gold spans of some sequences."""
        counts, golds = self.words.counts[chosen], gold.counts[chosen]
        places = run_indices(edges(gold.counts)[:-1][chosen], golds)
        words_before = edges(counts)[:-1]
        borders = np.searchsorted(gold.related[:, 0], edges(gold.counts))
        links = np.diff(borders)[chosen]
        moved = np.repeat(edges(golds)[:-1] - edges(gold.counts)[:-1][chosen], links)
        related = gold.related[run_indices(borders[:-1][chosen], links)]
        return WordSpans(
            counts=counts,
            first=gold.first[places] + np.repeat(words_before, golds),
            last=gold.last[places] + np.repeat(words_before, golds),
            types=gold.types[places],
            golds=golds,
            related=related + moved[:, None] * np.array([1, 1, 0]),
        )

    def batch(self, chosen: Ints, gold: GoldSpans | None = None) -> TrainingBatch[Ints]:
        """Some sequences, end to end, with their gold spans where there are any."""
        targets: dict[type, Any] = {} if gold is None else {WordSpans: self.word_spans(chosen, gold)}
        return TrainingBatch(tokens=self.sequences.batch(chosen), targets=targets)


def span_sequences(
    tokenizer: Tokenizer, aligned: Sequence[Alignment], *, limit: int, longest: int, truncate: bool = False
) -> SpanSequences:
    """Texts that are aligned with their words. Truncated ones lose the words whose tokens are not read."""
    template = tokenizer.template.single
    sequences = word_sequences(tokenizer, aligned, limit=limit, truncate=truncate)
    assert sequences.words is not None
    starts = sequences.words.counts
    nothing = np.empty(0, np.int64)
    begins, counts, pairs, rows, words = [], [], [], [nothing], [nothing]
    number = 0
    for text in aligned:
        cut = windows(len(text.ids), size=template.text_length(limit))
        low = 0
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True):
            high = low + int(starts[number])
            last = high
            if not truncate:  # words that spans may end at; beyond a cut nothing is read
                while last < min(high + longest - 1, len(text.word_tokens)) and text.word_tokens[last, 1] <= end:
                    last += 1
            tokens = np.clip(text.word_tokens[low:last], start, end)
            sizes = tokens[:, 1] - tokens[:, 0]
            rows.append(run_indices(tokens[:, 0], sizes) - start + template.opening)
            words.append(np.repeat(np.arange(last - low), sizes))
            begins.append(low)
            counts.append(last - low)
            pairs.append(int(sizes.sum()))
            low, number = high, number + 1
            if truncate:
                break
    wide = SequenceWords(
        counts=np.array(counts, np.int64),
        starts=starts,
        pairs=np.array(pairs, np.int64),
        rows=np.concatenate(rows),
        words=np.concatenate(words),
    )
    return SpanSequences(replace(sequences, words=wide), np.array(begins, np.int64))
