"""Metrics of sentence vectors on examples of any kind, from the similarities of their texts.

| rows | metrics |
| --- | --- |
| scores | spearman and pearson of cosines and scores |
| pairs, triplets, groups | mrr@10, recall@1, recall@10 of finding a positive among all texts of the file |
| triplets | also triplet-accuracy: the positive is nearer than every negative of its example |
| texts | teacher-pearson: of the cosines of neighbouring texts and those of the teacher |

    values = sentence_metrics(texts, data, "pairs")
    {name: metric.score(…) for name, metric in values.items()}

What is searched are all texts that are a positive or a negative somewhere; of groups all texts but the anchor itself.
An anchor's relevant texts are all its positives in the file. Every anchor counts once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import edges
from larvatus.metrics.correlation import pearson, spearman
from larvatus.metrics.ranking import DEPTH, by_score, recall_at, reciprocal_rank
from larvatus.tasks.embed.compared import ComparedTexts, DenseTexts
from larvatus.tasks.embed.encode import EncodedSentences
from larvatus.tasks.embed.examples import Rows
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_mean

AT_ONCE = 256
"""Anchors whose cosines with all texts are in memory."""
METRICS: dict[Rows, tuple[str, ...]] = {
    "scores": ("spearman", "pearson"),
    "pairs": (f"mrr@{DEPTH}", "recall@1", f"recall@{DEPTH}"),
    "triplets": (f"mrr@{DEPTH}", "recall@1", f"recall@{DEPTH}", "triplet-accuracy"),
    "groups": (f"mrr@{DEPTH}", "recall@1", f"recall@{DEPTH}"),
    "texts": ("teacher-pearson",),
}
"""The first of them selects the best weights."""


def sentence_metrics(texts: ComparedTexts, data: EncodedSentences, rows: Rows) -> dict[str, ResampledMetric]:
    """What each example, or each anchor, adds to each metric."""
    if rows == "scores":
        return _correlations(texts.paired(data.texts[0::2], data.texts[1::2]), data.scores)
    if rows == "texts":
        return {"teacher-pearson": _correlations(_neighbours(texts, len(data.sequences)), _teacher(data))["pearson"]}
    by_anchor = np.array([*_searched(texts, data, groups=rows == "groups")])
    metrics = {name: resampled_mean(by_anchor[:, place]) for place, name in enumerate(METRICS["pairs"])}
    if rows == "triplets":
        metrics["triplet-accuracy"] = resampled_mean(_triplets(texts, data))
    return metrics


def _correlations(cosines: Doubles | Floats, wanted: Doubles | Floats) -> dict[str, ResampledMetric]:
    pairs = np.stack([cosines, wanted], axis=1).astype(np.float64)
    return {
        "spearman": ResampledMetric(pairs, lambda rows: spearman(rows[:, 0], rows[:, 1]), "rows"),
        "pearson": ResampledMetric(pairs, lambda rows: pearson(rows[:, 0], rows[:, 1]), "rows"),
    }


def _neighbours(texts: ComparedTexts, count: int) -> Floats:
    """Similarity of each text with the next."""
    numbers = np.arange(count)
    return texts.paired(numbers, np.roll(numbers, -1))


def _teacher(data: EncodedSentences) -> Floats:
    assert data.teacher is not None
    return _neighbours(DenseTexts(np.asarray(data.teacher, np.float32)), len(data.sequences))


def relevant_texts(data: EncodedSentences, *, groups: bool) -> dict[int, set[int]]:
    """The positives of each anchor; of groups, each text is an anchor and all others of its group are positives."""
    relevant: dict[int, set[int]] = {}
    if groups:
        members: dict[int, set[int]] = {}
        for (first, second), group in zip(data.texts.reshape(-1, 2).tolist(), data.groups.tolist(), strict=True):
            members.setdefault(group, set()).update((first, second))
        for texts in members.values():
            for text in texts:
                relevant.setdefault(text, set()).update(texts - {text})
        return relevant
    for start in edges(data.counts)[:-1].tolist():
        relevant.setdefault(int(data.texts[start]), set()).add(int(data.texts[start + 1]))
    return relevant


def candidates(data: EncodedSentences, *, groups: bool) -> Ints:
    """The texts that are searched."""
    if groups:
        return np.unique(data.texts)
    anchors = np.zeros(len(data.texts), np.bool_)
    anchors[edges(data.counts)[:-1]] = True
    return np.unique(data.texts[~anchors])


def _searched(compared: ComparedTexts, data: EncodedSentences, *, groups: bool) -> Iterator[tuple[float, float, float]]:
    """MRR, recall at 1 and recall at 10 of each anchor."""
    relevant, texts = relevant_texts(data, groups=groups), candidates(data, groups=groups)
    anchors = list(relevant)
    for start in range(0, len(anchors), AT_ONCE):
        block = anchors[start : start + AT_ONCE]
        scores = compared.scores(np.array(block), texts)
        for anchor, row in zip(block, scores, strict=True):
            others = texts != anchor
            grades = np.isin(texts[others], list(relevant[anchor])).astype(np.float64)
            ranked = by_score(grades, row[others])
            total = len(relevant[anchor] - {anchor})
            yield (
                reciprocal_rank(ranked, DEPTH),  # type: ignore[arg-type]
                recall_at(ranked, 1, relevant=total),  # type: ignore[arg-type]
                recall_at(ranked, DEPTH, relevant=total),  # type: ignore[arg-type]
            )


def _triplets(texts: ComparedTexts, data: EncodedSentences) -> Doubles:
    """Whether the positive of each example is nearer to its anchor than all its negatives."""
    right = []
    for start, count in zip(edges(data.counts)[:-1].tolist(), data.counts.tolist(), strict=True):
        anchor, others = data.texts[start : start + 1], data.texts[start + 1 : start + count]
        similarities = texts.scores(anchor, others)[0]
        right.append(float((similarities[0] > similarities[1:]).all()))
    return np.array(right)
