"""Which spans are kept, of those that exclude each other (chapter §11.5.2: decoding, and the calibrated threshold).

    free     every span whose best type is surer than NULL by the threshold
    nested   of two that cross, the surer one (Yu, Bohnet & Poesio 2020: greedy, best first); one may hold another
    flat     no two share a word: the best such set, exactly (weighted interval scheduling)

A span counts by its margin, the log-odds of its best type against NULL, less that of the threshold: the sum over a set
of spans is then the log-odds of just this set, were spans independent, so one long sure span beats two halves that are
hardly likelier than not. A threshold is fitted to held-out spans, for F1 or for a wished precision.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.models.heads.spans import NULL, Decoding

SpanTuple = tuple[int, int, int]
"""First word, the word after the last, type."""
THRESHOLDS = (*(n / 50 for n in range(1, 50)), 0.99, 0.995, 0.999)
FLOOR = THRESHOLDS[0]
"""Spans less sure than the lowest threshold are not remembered."""


@dataclass(frozen=True, eq=False)
class SpanCandidates:
    """Spans of one text that may be something, each with its best type."""

    first: Ints
    end: Ints
    """The word after the last."""
    types: Ints
    margins: npt.NDArray[np.float64]
    """Log-odds of the type against NULL."""
    numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Which of the scored spans they are."""
    vectors: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """What relations between them are scored from, a row for each; nothing where none are looked for."""

    @classmethod
    def join(cls, parts: Sequence[SpanCandidates]) -> SpanCandidates:
        """End to end, without numbers."""
        whole, nothing = np.empty(0, np.int64), np.empty(0)
        return cls(
            first=np.concatenate([whole, *(part.first for part in parts)]),
            end=np.concatenate([whole, *(part.end for part in parts)]),
            types=np.concatenate([whole, *(part.types for part in parts)]),
            margins=np.concatenate([nothing, *(part.margins for part in parts)]),
            vectors=np.concatenate([part.vectors for part in parts]) if parts else np.empty((0, 0), np.float32),
        )

    def take(self, chosen: Ints) -> SpanCandidates:
        return SpanCandidates(
            self.first[chosen],
            self.end[chosen],
            self.types[chosen],
            self.margins[chosen],
            vectors=self.vectors[chosen] if len(self.vectors) else self.vectors,
        )

    def __len__(self) -> int:
        return len(self.first)

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """How sure the type is rather than NULL."""
        return 1 / (1 + np.exp(-np.clip(self.margins, -700, 700)))

    def spans(self, chosen: Ints) -> list[SpanTuple]:
        return list(
            zip(self.first[chosen].tolist(), self.end[chosen].tolist(), self.types[chosen].tolist(), strict=True)
        )


def find_candidates(
    first_M: Ints, end_M: Ints, scores_MK: Floats, *, temperature: float, floor: float
) -> SpanCandidates:
    """Spans whose best type is at least as sure as `floor`, from scores of NULL and the types [M, 1 + K]."""
    types = scores_MK[:, NULL + 1 :].argmax(1)
    margins = scores_MK[np.arange(len(types)), types + 1].astype(np.float64) - scores_MK[:, NULL]
    kept = np.flatnonzero(margins / temperature >= log_odds(floor))
    return SpanCandidates(first_M[kept], end_M[kept], types[kept], margins[kept] / temperature, kept)


def log_odds(share: float) -> float:
    if share in (0.0, 1.0):
        return -math.inf if share == 0.0 else math.inf
    return math.log(share / (1 - share))


def decode_spans(spans: SpanCandidates, decoding: Decoding, threshold: float) -> Ints:
    """Numbers of the candidates that are kept, in the order of the text, outer spans first."""
    line = log_odds(threshold)
    sure = np.flatnonzero(spans.margins >= line)
    if decoding == "nested":
        sure = _not_crossing(spans, sure)
    elif decoding == "flat":
        sure = _not_overlapping(spans, sure, spans.margins - max(line, -700))
    return sure[np.lexsort((-spans.end[sure], spans.first[sure]))]


def _not_crossing(spans: SpanCandidates, sure: Ints) -> Ints:
    """Best first, of equals the earlier and longer; each is kept unless it crosses one that is."""
    order = sure[np.lexsort((-spans.end[sure], spans.first[sure], -spans.margins[sure]))]
    ends: dict[int, list[int]] = defaultdict(list)  # of kept spans, by their first words
    begins: dict[int, list[int]] = defaultdict(list)  # first words of kept spans, by their ends
    kept = []
    for number in order.tolist():
        i, j = int(spans.first[number]), int(spans.end[number])
        # one that crosses begins inside and ends beyond, or ends inside and begins before
        crossed = any(others and others[-1] > j for word in range(i + 1, j) if (others := ends.get(word)))
        if crossed or any(others and others[0] < i for word in range(i + 1, j) if (others := begins.get(word))):
            continue
        bisect.insort(ends[i], j)
        bisect.insort(begins[j], i)
        kept.append(number)
    return np.array(kept, dtype=np.int64)


def _not_overlapping(spans: SpanCandidates, sure: Ints, weights: npt.NDArray[np.float64]) -> Ints:
    """The set without a shared word whose weights sum to most (Kleinberg & Tardos 2005, §6.1)."""
    order = sure[np.lexsort((spans.first[sure], spans.end[sure]))]
    ends = spans.end[order]
    before = np.searchsorted(
        ends, spans.first[order], side="right"
    ).tolist()  # those that end where it begins or earlier
    best, taken = [0.0], []
    for number, (weight, earlier) in enumerate(zip(weights[order].tolist(), before, strict=True)):
        taken.append(best[earlier] + weight > best[number])
        best.append(max(best[earlier] + weight, best[number]))
    kept, place = [], len(order)
    while place:
        if taken[place - 1]:
            kept.append(int(order[place - 1]))
            place = before[place - 1]
        else:
            place -= 1
    return np.array(kept[::-1], dtype=np.int64)


@dataclass(frozen=True)
class Threshold:
    """A threshold and what it is worth on the spans it was fitted to."""

    threshold: float
    precision: float
    recall: float

    def __str__(self) -> str:
        return f"{self.threshold:g}: precision {self.precision:.3f}, recall {self.recall:.3f}"

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / max(self.precision + self.recall, 1e-12)


def calibrate_threshold(
    texts: Sequence[SpanCandidates],
    gold: Sequence[set[SpanTuple]],
    decoding: Decoding,
    *,
    precision: float | None = None,
) -> Threshold:
    """The threshold with the best F1; or the lowest that reaches a wished precision. Of equals the nearest to 0.5."""
    if precision is not None and not 0 < precision <= 1:
        raise UsageError(f"the wished precision is a share above 0 and at most 1, not {precision}")
    tried = [_worth(texts, gold, decoding, threshold) for threshold in THRESHOLDS]
    if precision is None:
        return max(tried, key=lambda threshold: (threshold.f1, -abs(threshold.threshold - 0.5)))
    enough = [threshold for threshold in tried if threshold.precision >= precision and threshold.recall > 0]
    if not enough:
        best = max(tried, key=lambda threshold: (threshold.precision if threshold.recall else 0.0, threshold.recall))
        raise DataError(
            f"no threshold reaches a precision of {precision} on the held-out spans: the best is {best.precision:.3f}, "
            f"at {best.threshold:g}; ask for less"
        )
    return enough[0]


def _worth(
    texts: Sequence[SpanCandidates], gold: Sequence[set[SpanTuple]], decoding: Decoding, threshold: float
) -> Threshold:
    right = predicted = 0
    for spans, wanted in zip(texts, gold, strict=True):
        if len(spans):
            kept = spans.spans(decode_spans(spans, decoding, threshold))
            predicted += len(kept)
            right += sum(span in wanted for span in kept)
    all_gold = sum(map(len, gold))
    return Threshold(threshold, right / max(predicted, 1), right / max(all_gold, 1))
