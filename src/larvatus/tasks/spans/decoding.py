"""Which spans are kept of those that exclude each other, and the relations between them (chapter §11.5.2).

    free     every span whose best type is surer than NULL by the threshold
    nested   of two that cross, the surer one (Yu, Bohnet & Poesio 2020: greedy, best first); one may hold another
    flat     no two share a word: the best such set, exactly (weighted interval scheduling)

A span counts by its margin, the log-odds of its best type against NULL, less that of the threshold. The sum over a set
of spans is then the log-odds of just this set, if spans were independent, so one long sure span beats two halves that
are hardly likelier than not. A threshold is fitted to validation spans, for F1 or for a requested precision.

    pairs = predict_relations(head, kept)              # pairs that may be related, with their best label
    pairs.first, pairs.end, pairs.types                # numbers of head and tail among the kept spans; label

Spans are paired anywhere in their text, also across windows, up to the head's reach. Only relations within a window are
trained. Pairs are scored in portions, so memory stays small however many spans there are.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges, runs
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.models.heads import Spans, SpansConfig
from larvatus.models.heads.spans import NULL, Decoding
from larvatus.models.nn.span_scorer import BUDGET, distances, gaps
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import run_indices

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
    """Their numbers among the scored spans."""
    vectors: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """Inputs of relation scores, a row for each; empty without relations."""

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
        """Probability of the type against NULL."""
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
    """A threshold with precision and recall on the spans it was fitted to."""

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
            f"at {best.threshold:g}; request less"
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


RelationTuple = tuple[SpanTuple, SpanTuple, int]
"""Head, tail, label."""


def unknown_relations(examples: Sequence[SpannedWords], config: SpansConfig) -> UnknownLabels:
    """Relations that are none of the model's; nothing where the head does not look for any."""
    if config.relations is None:
        return UnknownLabels()
    ids = set(config.relations.labels)
    unknown = [
        (n, label) for n, example in enumerate(examples) for _, _, label in example.relations if label not in ids
    ]
    first = ""
    if unknown:
        number, label = unknown[0]
        first = f"{examples[number].place}: the relation {label!r} is one that the model does not know"
        first += did_you_mean(label, ids)
    return UnknownLabels.of(unknown, total=sum(len(example.relations) for example in examples), first=first)


def gold_relations(
    example: SpannedWords, config: SpansConfig, types: Mapping[str, int], unknown: Sequence[str] = ()
) -> frozenset[RelationTuple]:
    """The relations of an example in numbers, `unknown` ones last; none where the head does not look for them."""
    if config.relations is None:
        return frozenset()
    labels = {label: number for number, label in enumerate((*config.relations.labels, *unknown))}
    relations = set()
    for head, tail, label in example.relations:
        a, b = ((span.start, span.end, types[span.label]) for span in ((example.spans or ())[n] for n in (head, tail)))
        relations.add((a, b, labels[label]))
    return frozenset(relations)


def learnt_relations(
    gold: Sequence[frozenset[RelationTuple]],
    places: Sequence[Mapping[SpanTuple, tuple[int, int]]],
    counts: Ints,
    config: SpansConfig,
) -> tuple[Ints, int]:
    """Relations to train on [R, 3]: heads ascending, tails, labels; and how many cannot be trained on.

    `places` says the sequence of each span of an example, and its number there; `counts` how many each sequence has.
    """
    before = edges(counts)
    rows: dict[tuple[int, int], int] = {}
    lost = 0
    known = len(config.relations.labels) if config.relations is not None else 0
    for placed, relations in zip(places, gold, strict=True):
        for a, b, label in sorted(relation for relation in relations if relation[2] < known):
            (head_in, head), (tail_in, tail) = placed.get(a, (-1, 0)), placed.get(b, (-2, 0))
            pair = int(before[head_in]) + head, int(before[tail_in]) + tail
            if head_in != tail_in or pair in rows:  # in different windows, or not trained on; or related twice
                lost += 1
            else:
                rows[pair] = label
    triples = [(*pair, label) for pair, label in sorted(rows.items())]
    return np.array(triples, np.int64).reshape(-1, 3), lost


@torch.inference_mode()
def predict_relations(head: Spans, spans: SpanCandidates, *, floor: float | None = None) -> SpanCandidates:
    """Pairs of a text's spans, as sure of a relation as `floor` (the head's own threshold, where none is given).

    `first` and `end` of what is found are the numbers of head and tail among the spans.
    """
    config, scorer = head.config.relations, head.relations
    assert config is not None
    assert scorer is not None, "the head does not look for relations"
    least = config.threshold if floor is None else floor
    order = np.argsort(spans.first, kind="stable")
    device = scorer.bias.device
    sides_nH = torch.from_numpy(spans.vectors[order]).to(device)
    first_n, last_n = (torch.from_numpy(array[order]).to(device) for array in (spans.first, spans.end - 1))
    parts = []
    for heads, tails in _portions(spans.first[order], spans.end[order], config.reach, _portion(sides_nH)):
        heads_P, tails_P = torch.from_numpy(heads).to(device), torch.from_numpy(tails).to(device)
        gaps_P = gaps(first_n, last_n, heads_P, tails_P)
        near_P = (heads_P != tails_P) & (gaps_P.abs() <= config.reach)
        heads_P, tails_P = heads_P[near_P], tails_P[near_P]
        scores = scorer(sides_nH, heads_P, tails_P, distances(gaps_P[near_P])).float().cpu().numpy()
        parts.append(
            find_candidates(
                order[heads_P.cpu().numpy()], order[tails_P.cpu().numpy()], scores, temperature=1.0, floor=least
            )
        )
    return SpanCandidates.join(parts)


def _portion(sides_nH: torch.Tensor) -> int:
    """Pairs that are scored at a time."""
    return max(1, BUDGET.get(sides_nH.device.type, BUDGET["cpu"]) // max(1, sides_nH.shape[-1] // 2))


def _portions(first: Ints, end: Ints, reach: int, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Heads with the tails that may be in their reach, some pairs at a time; spans are in the order of `first`."""
    longest = int((end - first).max(initial=1))
    low = np.searchsorted(first, first - reach - longest + 1, side="left")
    counts = np.searchsorted(first, end - 1 + reach, side="right") - low
    for start, stop in runs(counts, size):
        yield (
            np.repeat(np.arange(start, stop), counts[start:stop]),
            run_indices(low[start:stop], counts[start:stop]),
        )


def kept_relations(head: Spans, spans: SpanCandidates) -> list[tuple[int, int, int, float]]:
    """Head and tail by their numbers among the spans, label, and how sure it is rather than none; in their order."""
    if head.config.relations is None or len(spans) < 2:
        return []
    pairs = predict_relations(head, spans)
    sure = np.flatnonzero(pairs.margins >= log_odds(head.config.relations.threshold))
    rows = zip(*(column[sure].tolist() for column in (pairs.first, pairs.end, pairs.types, pairs.scores)), strict=True)
    return sorted(rows)
