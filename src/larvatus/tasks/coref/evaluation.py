"""Evaluation of a model that resolves coreference: MUC, B³, CEAF-φ4, their mean, LEA and mentions, with intervals.

    found = evaluate_coref(bundle, read_documents("test.conll"))
    found.metrics["conll-f1"].value, found.metrics["conll-f1-without-singletons"].value

Documents are resampled. Clusters of one mention count as the file and the model have them; the metrics
`-without-singletons` leave them out on both sides. Mentions that were not read count as missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.classification import divide
from larvatus.metrics.coreference import METRICS, conll_score, coreference_counts, coreference_f1, without_singletons
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import Network
from larvatus.tasks.coref.decoding import (
    coref_head,
    document_vectors,
    predict_documents,
    predicted_clusters,
    resolve,
)
from larvatus.tasks.coref.encode import CorefDocuments, encode_documents
from larvatus.tasks.coref.examples import CorefExample, WordSpan
from larvatus.tasks.coref.gap import GapExample, corefers, gap_metrics
from larvatus.tasks.evaluation.evaluation import (
    EvaluationOptions,
    ResampledEvaluation,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores

NAMES = {"muc": "MUC", "b3": "B³", "ceafe": "CEAF-φ4", "lea": "LEA", "mention": "mentions"}
ALONE = "-without-singletons"
METRIC_NAMES = ("conll-f1", *(f"{name}-f1" for name in METRICS))

PredictedClusters = Sequence[Sequence[Sequence[WordSpan]]]


def document_counts(examples: Sequence[CorefExample], predicted: PredictedClusters) -> Doubles:
    """[E, 2, metrics, 4] sums of each document: with clusters of one mention, and without."""
    rows = [
        (
            coreference_counts(example.clusters or (), clusters),
            coreference_counts(without_singletons(example.clusters or ()), without_singletons(clusters)),
        )
        for example, clusters in zip(examples, predicted, strict=True)
    ]
    return np.array(rows)


def resampled_scores(counts: Doubles) -> dict[str, ResampledMetric]:
    """All metrics, first with clusters of one mention, then without."""
    metrics: dict[str, ResampledMetric] = {}
    for column, ending in enumerate(("", ALONE)):
        rows = counts[:, column]
        metrics[f"conll-f1{ending}"] = ResampledMetric(rows, conll_score)
        for number, name in enumerate(METRICS):
            metrics[f"{name}-f1{ending}"] = ResampledMetric(rows, _f1_of(number))
    return metrics


def _f1_of(number: int) -> Callable[[Doubles], Doubles]:
    return lambda sums: coreference_f1(sums)[..., number]


@dataclass(frozen=True, eq=False)
class CorefValidation(EncodedValidation):
    """Documents that a model is scored on while it is trained."""

    data: CorefDocuments
    examples: tuple[CorefExample, ...]
    metric: str

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        head, losses, predicted = coref_head(model), 0.0, []
        vectors = document_vectors(model, self.data, scoring, self.features)
        for (z_nD, forms_n2), gold in zip(vectors, self.data.mentions, strict=True):
            predicted.append(resolve(head, z_nD, forms_n2, scoring).spans(singletons=head.config.singletons))
            losses += head.document_loss(z_nD, forms_n2, torch.from_numpy(gold).to(scoring.device).T)
        sums = document_counts(self.examples, predicted).sum(0)
        values = {"conll-f1": float(conll_score(sums[0]))}
        values |= {f"{name}-f1": float(value) for name, value in zip(METRICS, coreference_f1(sums[0]), strict=True)}
        size = sum(max(1, len(gold)) for gold in self.data.mentions)
        return Scores(metric=self.metric, values=values, validation_loss=losses / size)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """None: the probability of a mention is trained as one."""
        return Calibration()


@dataclass(frozen=True, kw_only=True, eq=False)
class CorefEvaluation(ResampledEvaluation):
    """Evaluation of a model on documents with clusters."""

    counts: Doubles
    """[E, 2, metrics, 4] as of `document_counts`."""

    def details(self) -> dict[str, Any]:
        return {"metrics": plain_metrics(self.metrics), "precision_and_recall": self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for column, singletons in enumerate((True, False)):
            sums = self.counts[:, column].sum(0)
            precision, recall = divide(sums[:, 2], sums[:, 3]).tolist(), divide(sums[:, 0], sums[:, 1]).tolist()
            for name, *values in zip(METRICS, precision, recall, coreference_f1(sums).tolist(), strict=True):
                record = dict(zip(("precision", "recall", "f1"), values, strict=True))
                rows.append({"metric": name, "singletons": singletons, **record})
        return rows

    def shown(self) -> Iterator[ReportPart]:
        yield Table(
            ("metric", "singletons", "precision", "recall", "F1"),
            tuple(
                (
                    NAMES[row["metric"]],
                    "counted" if row["singletons"] else "left out",
                    *(f"{row[name]:.4f}" for name in ("precision", "recall", "f1")),
                )
                for row in self._rows()
            ),
            blank_before=True,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class GapEvaluation(ResampledEvaluation):
    """Evaluation of a model on the pronouns of GAP."""

    answers: tuple[tuple[bool, bool], ...]
    """Whether the pronoun of each example is coreferent with either name."""

    def shown(self) -> Iterator[ReportPart]:
        feminine = sum(example.feminine for example in self.data)
        yield f"\n{len(self.data) - feminine:,} masculine and {feminine:,} feminine pronouns, each with two names"


def evaluate_coref(
    bundle: Bundle, data: Dataset[Any], options: EvaluationOptions = EvaluationOptions()
) -> CorefEvaluation | GapEvaluation:
    """A model that resolves coreference, on documents with clusters or on the pronouns of GAP."""
    config = coref_head(bundle.network, str(bundle.path)).config
    documents = encode_documents(bundle.tokenizer, _inputs(data), config, options.windows(bundle))
    bundle.network.to(options.scoring.device)
    reading = read_statistics(
        documents.sequences,
        words=sum(len(text.word_spans) for text in documents.texts),
        words_read=int(documents.words.sum()),
    )
    if isinstance(data.examples[0], GapExample):
        return _on_gap(bundle, data, documents, options, reading)
    counts = document_counts(data.examples, predicted_clusters(bundle.network, documents, options.scoring))
    resampled = resampled_scores(counts)
    return CorefEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(resampled),
        reading=reading,
        resampled=resampled,
        counts=counts,
    )


def _inputs(data: Dataset[Any]) -> Sequence[Any]:
    """What the model reads."""
    bare = next((each for each in data if isinstance(each, CorefExample) and each.clusters is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its mentions are not marked, so there is nothing to hold the model's against")
    return [each.plain_text() if isinstance(each, GapExample) else each for each in data]


def _on_gap(
    bundle: Bundle, data: Dataset[GapExample], documents: CorefDocuments, options: EvaluationOptions, reading: Any
) -> GapEvaluation:
    answers = []
    for example, predicted in zip(data, predict_documents(bundle.network, documents, options.scoring), strict=True):
        clusters = [[(each.start, each.end) for each in cluster.mentions] for cluster in predicted.clusters]
        answers.append(corefers(example, clusters))
    resampled = gap_metrics(data.examples, answers)
    return GapEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(resampled),
        reading=reading,
        resampled=resampled,
        answers=tuple(answers),
    )
