"""Evaluation of a sentence encoder, while it is trained and after.

    evaluation = evaluate_sentences(bundle, read_sentences("sts-test.tsv"))
    evaluation.metrics["spearman"].value
    SentenceValidation(data, "scores", metric="spearman").scores(model, scoring).main

| rows | metrics |
| --- | --- |
| scores | spearman and pearson of cosines and scores |
| pairs, triplets, groups | mrr@10, recall@1, recall@10 of finding a positive among all texts of the file |
| triplets | also triplet-accuracy: the positive is nearer than every negative of its example |
| texts | teacher-pearson: of the cosines of neighbouring texts and those of the teacher |

What is searched are all texts that are a positive or a negative somewhere; of groups all texts but the anchor itself.
An anchor's relevant texts are all its positives in the file. Every anchor counts once.

The kind of the validation examples may differ from that of the training examples: a model trained on pairs, or by
distillation, may be selected on scored pairs. There is nothing to calibrate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.core.targets import SentenceTargets
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.intervals import score_of_all
from larvatus.metrics.ranking import DEPTH, by_score, pearson, recall_at, reciprocal_rank, spearman
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.embedding import TextHead
from larvatus.models.network import Network
from larvatus.tasks.embed.compared import ComparedTexts, DenseTexts, compared_texts, reading_of
from larvatus.tasks.embed.encode import EncodedSentences, embedder_of, encode_sentences
from larvatus.tasks.embed.examples import Rows, SentenceExample, rows_of
from larvatus.tasks.evaluation.evaluation import EvaluationOptions, ResampledEvaluation, read_statistics
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_mean
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Calibration, Scores

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


# Validation and evaluation.

LOSS_BATCH = 64
"""Examples of which a validation loss is computed together."""


@dataclass(frozen=True, eq=False)
class SentenceValidation:
    data: EncodedSentences
    rows: Rows
    metric: str
    has_loss: bool = False
    """Whether the training loss can be computed of these examples."""
    features: Features | None = None
    """Pooled texts of a frozen encoder; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> SentenceValidation:
        return dataclasses.replace(self, features=Features.build(model, _Texts(self.data), scoring))

    def texts(self, model: Network, scoring: ScoringOptions) -> ComparedTexts:
        """All texts, ready to be compared."""
        if self.features is None:
            return compared_texts(model, self.data, scoring)
        head = embedder_of(model)
        texts = np.arange(len(self.data.sequences))
        targets = self.data.alone(texts).targets[SentenceTargets].map(lambda array: torch.as_tensor(array))
        with torch.inference_mode():
            moved = targets.map(lambda tensor: tensor.to(scoring.device))
            vectors: Floats = head.vectors(self.features.of(texts), moved).float().cpu().numpy()
        return DenseTexts(vectors)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        texts = self.texts(model, scoring)
        metrics = sentence_metrics(texts, self.data, self.rows)
        values = {name: score_of_all(metric.rows, metric.score, metric.of) for name, metric in metrics.items()}
        # a correlation of cosines that are all equal is not defined, and counts as 0
        values = {name: value if math.isfinite(value) else 0.0 for name, value in values.items()}
        return Scores(metric=self.metric, values=values, validation_loss=self._loss(embedder_of(model), texts))

    def _loss(self, head: TextHead, texts: ComparedTexts) -> float:
        """The mean loss of batches of examples in their order; NaN where it is not of such examples."""
        if not self.has_loss:
            return math.nan
        losses = []
        for start in range(0, len(self.data), LOSS_BATCH):
            examples = np.arange(start, min(start + LOSS_BATCH, len(self.data)))
            targets = self.data.batch(examples).targets[SentenceTargets].map(lambda array: torch.as_tensor(array))
            losses.append(float(head.mean_loss(texts.tensors(self.data.texts_of(examples)), targets)) * len(examples))
        return sum(losses) / len(self.data)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        return Calibration()


@dataclass(frozen=True, eq=False)
class _Texts:
    """The different texts of a data set, by number."""

    data: EncodedSentences

    def __len__(self) -> int:
        return len(self.data.sequences)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        return self.data.alone(examples)


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceEvaluation(ResampledEvaluation):
    """Evaluation of a sentence encoder."""

    data: Dataset[SentenceExample]
    searched: int
    """Texts among which positives are searched; 0 for scores."""
    anchors: int

    def details(self) -> dict[str, Any]:
        counts = {"searched": self.searched, "anchors": self.anchors}
        return {"rows": rows_of(self.data), **super().details(), **counts}

    def shown(self) -> Iterator[ReportPart]:
        if self.searched:
            yield f"\n{self.anchors:,} texts are searched for among {self.searched:,}"


def evaluate_sentences(
    bundle: Bundle, data: Dataset[SentenceExample], options: EvaluationOptions = EvaluationOptions()
) -> SentenceEvaluation:
    """A sentence encoder on scored pairs, pairs, triplets or groups."""
    head, rows = embedder_of(bundle.network, str(bundle.path)), rows_of(data)
    if rows == "texts":
        raise DataError(f"{data.source} holds texts only, and nothing to measure vectors by; give pairs or scores")
    reading = reading_of(head, options.windows(bundle))
    encoded = encode_sentences(bundle, data.examples, reading)
    refuse_few(encoded, data)
    bundle.network.to(options.scoring.device)
    resampled = sentence_metrics(compared_texts(bundle.network, encoded, options.scoring), encoded, rows)
    searched = rows != "scores"
    return SentenceEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(resampled),
        reading=read_statistics(encoded.sequences),
        searched=len(candidates(encoded, groups=rows == "groups")) if searched else 0,
        anchors=len(relevant_texts(encoded, groups=rows == "groups")) if searched else len(encoded),
        resampled=resampled,
    )


def refuse_few(encoded: EncodedSentences, data: Dataset[SentenceExample]) -> None:
    """Refuse examples that no metric can be computed of."""
    rows = rows_of(data)
    if len(encoded) < 2:
        few = "no two texts of one group" if rows == "groups" and not len(encoded) else f"{len(encoded)} example"
        raise DataError(f"{data.source}: {few}; vectors are measured by two examples or more")
    if rows == "scores" and len(np.unique(encoded.scores)) < 2:
        raise DataError(f"{data.source}: all scores are {encoded.scores[0]:g}; give pairs with different scores")
