"""Relations between the spans that a text keeps: what is learnt of them, and what is found.

    found = predict_relations(head, kept)                       # pairs that may be related, with their best label
    found.first, found.end, found.types               # numbers of head and tail among the kept spans; label

Spans are paired wherever they stand in their text, in windows of their own too, as far apart as the head's reach.
Learnt are relations within a window. Pairs are scored in portions, so memory stays small however many spans there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, runs
from larvatus.core.errors import did_you_mean
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.models.heads import Spans, SpansConfig
from larvatus.models.nn.span_scorer import BUDGET, distances, gaps
from larvatus.tasks.encoding.sequences import run_indices
from larvatus.tasks.encoding.unknown import UnknownLabels
from larvatus.tasks.spans.decoding import SpanCandidates, SpanTuple, find_candidates, log_odds

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
    """Relations of spans that are learnt [R, 3]: heads ascending, tails, labels; and how many cannot be learnt.

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
            if head_in != tail_in or pair in rows:  # in windows of their own, or not learnt; or related twice
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
