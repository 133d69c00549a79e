"""How well a reranker orders the passages of a query, during and after training: nDCG@10, MRR@10 and MAP.

evaluation = evaluate_relevance(bundle, read_relevance("test.tsv"))
evaluation.metrics["ndcg@10"].value, evaluation.queries

Only queries with a relevant passage and another one count, since no order of the others is better or worse; the
evaluation reports how many there are. Each such query counts once, and intervals resample queries
(`metrics/ranking.py`). Passages with the same score are ranked as badly as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles, Floats
from larvatus.core.batch import edges
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.intervals import score_of_all
from larvatus.metrics.ranking import DEPTH, average_precision, by_score, ndcg, reciprocal_rank
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import Network
from larvatus.tasks.evaluation.evaluation import EvaluationOptions, ResampledEvaluation, read_statistics
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_mean
from larvatus.tasks.rerank.encode import EncodedRelevance, best_windows, encode_relevance, pair_scores, reranker_of
from larvatus.tasks.rerank.reader import RelevanceExample
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores, mean_loss

METRICS = (f"ndcg@{DEPTH}", f"mrr@{DEPTH}", "map")
"""The first of them selects the best weights."""


def ranking_metrics(scores_P: Floats, data: EncodedRelevance) -> dict[str, ResampledMetric]:
    """What each query adds to each metric; `data` has a list for each query."""
    rows = np.array([*_by_query(scores_P, data)])
    return {name: resampled_mean(rows[:, place]) for place, name in enumerate(METRICS)}


def _by_query(scores_P: Floats, data: EncodedRelevance) -> Iterator[tuple[float, float, float]]:
    starts = edges(data.candidates)
    for number in np.flatnonzero(counted_queries(data)).tolist():
        pairs = slice(int(starts[number]), int(starts[number + 1]))
        ranked = by_score(data.grades[pairs], scores_P[pairs]).tolist()
        yield ndcg(ranked, DEPTH), reciprocal_rank(ranked, DEPTH), average_precision(ranked)


def counted_queries(data: EncodedRelevance) -> Any:
    """[E] whether a list has a relevant passage, and passages of different relevance."""
    starts = edges(data.candidates)[:-1]
    highest, lowest = (reduce.reduceat(data.grades, starts) for reduce in (np.maximum, np.minimum))
    return (highest > 0) & (lowest < highest)


def refuse_uncounted(data: EncodedRelevance, source: str) -> None:
    """Refuse examples of which no query has anything to rank."""
    if not counted_queries(data).any():
        raise DataError(
            f"{source}: none of {len(data):,} queries has a relevant passage (a label above 0) and another that is "
            "less relevant; give each query both"
        )


@dataclass(frozen=True, eq=False)
class RelevanceValidation(EncodedValidation):
    data: EncodedRelevance
    """A list for each query, whatever the loss."""
    metric: str = METRICS[0]

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self.row_scores(model, scoring)
        metrics = ranking_metrics(best_windows(windows, self.data.sequences), self.data)
        return Scores(
            metric=self.metric,
            values={name: score_of_all(metric.rows, metric.score, metric.of) for name, metric in metrics.items()},
            validation_loss=self._loss(model, windows),
        )

    def _loss(self, model: Network, windows: Floats) -> float:
        """As training counts it; of a listwise loss over the queries that have something to rank."""
        head = reranker_of(model)
        lists = np.arange(len(self.data))
        if head.config.loss.listwise:
            lists = np.flatnonzero(counted_queries(self.data))
        rows = windows[self.data.sequences.of(self.data.pairs_of(lists))]
        return mean_loss(head_of(model), rows, self.data.targets(lists))

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        return Calibration()


@dataclass(frozen=True, kw_only=True, eq=False)
class RelevanceEvaluation(ResampledEvaluation):
    """Evaluation of a reranker."""

    data: Dataset[RelevanceExample]
    queries: int
    """Queries that count: they have a relevant passage and another one."""
    all_queries: int

    @property
    def by_query(self) -> dict[str, Doubles]:
        """Values of each metric, one for each query that counts."""
        return {name: metric.rows[:, 0] for name, metric in self.resampled.items()}

    def details(self) -> dict[str, Any]:
        return {**super().details(), "queries": self.queries, "all_queries": self.all_queries}

    def shown(self) -> Iterator[ReportPart]:
        more = self.all_queries - self.queries
        other = f"; {more:,} others have no relevant passage, or nothing else, and do not count" if more else ""
        yield f"\n{self.queries:,} queries{other}"


def evaluate_relevance(
    bundle: Bundle, data: Dataset[RelevanceExample], options: EvaluationOptions = EvaluationOptions()
) -> RelevanceEvaluation:
    """A reranker on queries with labelled passages."""
    reranker_of(bundle.network, str(bundle.path))
    encoded = encode_relevance(bundle, data.examples, options.windows(bundle), listwise=True)
    refuse_uncounted(encoded, data.source)
    bundle.network.to(options.scoring.device)
    resampled = ranking_metrics(pair_scores(bundle.network, encoded.sequences, options.scoring), encoded)
    return RelevanceEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(resampled),
        reading=read_statistics(encoded.sequences),
        queries=int(counted_queries(encoded).sum()),
        all_queries=len(encoded),
        resampled=resampled,
    )
