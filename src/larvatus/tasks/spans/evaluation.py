"""What a model that finds spans is worth on labelled ones: strict F1 by type and by depth, with intervals.

    found = evaluate_spans(bundle, read_spanned("test.conllu"))
    found.metrics["span-f1"].value, found.by_depth[2].f1, found.errors.boundary

A span is right if its first word, last word and type are. Gold spans that the model cannot give count as missed: those
of more words than it looks at, of types that it does not know, and those beyond the cut of a truncated text. Texts are
drawn by the bootstrap, not spans. Names and values of metrics are those of `held_out.span_values`; relations are scored
while a model learns, not here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.batch import edges
from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.labelled.spanned import BINARY, binary
from larvatus.metrics.classification import F1, divide
from larvatus.metrics.entities import Entities, EntityErrors, depths, span_f1
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.spans import Decoding
from larvatus.tasks.evaluation.evaluated import Evaluation, PairedMetrics, class_rows, plain_metrics, read_statistics
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_entities
from larvatus.tasks.evaluation.tables import class_table, entity_error_line
from larvatus.tasks.spans.sequences import SpanSequences
from larvatus.tasks.spans.spans import label_spans, spans_head
from larvatus.tasks.spans.validation import SpanValidation


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanEvaluation(Evaluation):
    """Evaluation of a model that finds spans."""

    data: Dataset[SpannedWords]
    labels: tuple[str, ...]
    decoding: Decoding
    threshold: float
    longest: int
    """Words of the longest span that the model looks at."""
    by_type: dict[str, F1]
    by_depth: dict[int, F1]
    """An outer span has depth 1, what stands in it depth 2, and so on."""
    errors: EntityErrors
    notes: tuple[str, ...]
    """How the gold spans are read, and which of them the model cannot find."""
    unknown: tuple[str, ...]
    """Types of gold spans that the model does not know."""
    gold_spans: list[set[tuple[int, int, str]]]
    found_spans: list[set[tuple[int, int, str]]]

    def shown(self) -> Iterator[ReportPart]:
        yield from class_table("type", self.by_type)
        yield from class_table("depth", {str(depth): score for depth, score in self.by_depth.items()})
        yield from entity_error_line("spans", self.errors)
        yield f"{self.decoding} decoding, threshold {self.threshold:g}, spans of up to {self.longest:,} words"
        yield from self.notes

    def paired(self, other: SpanEvaluation) -> PairedMetrics:
        return PairedMetrics(*paired_spans(self, other))

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "decoding": self.decoding,
            "threshold": self.threshold,
            "longest": self.longest,
            "metrics": plain_metrics(self.metrics),
            "types": class_rows(self.by_type),
            "depths": [{"depth": depth, **dataclasses.asdict(score)} for depth, score in self.by_depth.items()],
            "errors": dataclasses.asdict(self.errors),
            "labels": list(self.labels),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "read": self.reading.to_dict(),
        }


def evaluate_spans(
    bundle: Bundle, data: Dataset[SpannedWords], options: EvaluationOptions = EvaluationOptions()
) -> SpanEvaluation:
    """A model that finds spans; of one that only tells whether words are something, types are not asked for."""
    config = spans_head(bundle.network, str(bundle.path)).config
    bare = next((example for example in data if example.spans is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its words have no spans to hold the model's against")
    one_type = config.labels == (BINARY,)
    scored = binary(data) if one_type else data
    windows = options.windows(bundle)
    texts = label_spans(bundle.tokenizer, scored.examples, config, limit=windows.limit, truncate=windows.truncate)
    texts.unknown.check(strict=options.strict)
    bundle.network.to(options.scoring.device)
    gold, answers = SpanValidation(texts, config).both(bundle.network, options.scoring)
    score, rows = span_f1(gold, answers), resampled_spans(gold, answers)
    words = sum(len(example.words) for example in scored)
    return SpanEvaluation(
        model=str(bundle.path),
        data=data,
        labels=config.labels,
        decoding=config.decoding,
        threshold=config.threshold,
        longest=config.longest,
        metrics={name: metric.interval(samples=options.samples, seed=options.seed) for name, metric in rows.items()},
        by_type=score.all.by_type,
        by_depth=score.by_depth,
        errors=score.all.errors,
        notes=tuple(
            line
            for line in (
                *texts.notes(config.longest, learning=False),
                texts.unknown.note("spans", "of types", fate="count as missed"),
                "all types are read as one" if one_type else "",
            )
            if line
        ),
        unknown=texts.unknown.names,
        reading=read_statistics(texts.sequences, words=words, words_read=_words_read(texts.encoded)),
        gold_spans=gold,
        found_spans=answers,
    )


def _words_read(encoded: SpanSequences) -> int:
    """Every word is read by the last window that has it."""
    last = edges(encoded.sequences.parts)[1:] - 1
    return int((encoded.begins + encoded.counts)[last].sum())


def resampled_spans(gold: Sequence[Entities], answers: Sequence[Entities]) -> dict[str, ResampledMetric]:
    """Metrics of the spans of each text."""
    plain = resampled_entities(gold, answers)
    rows = _depth_rows(gold, answers)
    return {
        "span-f1": plain["entity-f1"],
        **{name: plain[name] for name in ("precision", "recall", "macro-f1")},
        "outer-f1": ResampledMetric(rows, lambda sums: _f1_by_depth(sums)[..., 0]),
        "inner-f1": ResampledMetric(rows, _inner_f1),
    }


def _depth_rows(gold: Sequence[Entities], answers: Sequence[Entities]) -> Doubles:
    """[E, 4, depths] gold spans, those found, predicted spans, those right; at least one depth."""
    counted: list[tuple[int, int, int]] = []
    for text, (right, guess) in enumerate(zip(gold, answers, strict=True)):
        for which, spans, others in ((0, right, set(guess)), (2, guess, set(right))):
            for span, depth in depths(spans).items():
                counted.append((text, which, depth - 1))
                if span in others:
                    counted.append((text, which + 1, depth - 1))
    places: npt.NDArray[np.int64] = np.array(counted, np.int64).reshape(-1, 3)
    table = np.zeros((len(gold), 4, int(places[:, 2].max(initial=0)) + 1))
    np.add.at(table, tuple(places.T), 1.0)
    return table


def _f1_by_depth(sums: Doubles) -> Doubles:
    """[…, 4, depths] → […, depths]."""
    recall, precision = divide(sums[..., 1, :], sums[..., 0, :]), divide(sums[..., 3, :], sums[..., 2, :])
    return divide(2 * precision * recall, precision + recall)


def _inner_f1(sums: Doubles) -> Doubles:
    """Over depths below the first, weighted by their gold spans."""
    support = sums[..., 0, 1:]
    return divide((_f1_by_depth(sums)[..., 1:] * support).sum(-1), support.sum(-1))


def paired_spans(
    first: SpanEvaluation, second: SpanEvaluation
) -> tuple[dict[str, ResampledMetric], dict[str, ResampledMetric]]:
    """What two models add text by text, counted in one go, so that both have the same types and depths."""
    if first.gold_spans != second.gold_spans:
        raise UsageError(f"{first.model} and {second.model} do not find the same types; compare two that do")
    count = len(first.gold_spans)
    rows = resampled_spans([*first.gold_spans, *second.gold_spans], [*first.found_spans, *second.found_spans])
    return (
        {name: dataclasses.replace(metric, rows=metric.rows[:count]) for name, metric in rows.items()},
        {name: dataclasses.replace(metric, rows=metric.rows[count:]) for name, metric in rows.items()},
    )
