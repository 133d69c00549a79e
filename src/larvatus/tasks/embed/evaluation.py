"""Evaluation of a sentence encoder: correlation with scores, or how well positives are found.

evaluation = evaluate_sentences(bundle, read_sentences("sts-test.tsv"))
evaluation.metrics["spearman"].value
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.embed.compared import compared_texts, reading_of
from larvatus.tasks.embed.encode import EncodedSentences, embedder_of, encode_sentences
from larvatus.tasks.embed.examples import SentenceExample, rows_of
from larvatus.tasks.embed.metrics import candidates, relevant_texts, sentence_metrics
from larvatus.tasks.evaluation.evaluation import (
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceEvaluation(Evaluation):
    """Evaluation of a sentence encoder."""

    data: Dataset[SentenceExample]
    searched: int
    """Texts among which positives are searched; 0 for scores."""
    anchors: int
    resampled: dict[str, ResampledMetric]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "rows": rows_of(self.data),
            "metrics": plain_metrics(self.metrics),
            "searched": self.searched,
            "anchors": self.anchors,
            "read": self.reading.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        if self.searched:
            yield f"\n{self.anchors:,} texts are searched for among {self.searched:,}"

    def paired(self, other: SentenceEvaluation) -> PairedMetrics:
        return PairedMetrics(self.resampled, other.resampled)


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
        metrics={name: m.interval(samples=options.samples, seed=options.seed) for name, m in resampled.items()},
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
