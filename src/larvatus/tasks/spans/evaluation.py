"""Scores of a model that finds spans, during and after training: strict F1 by type and by depth, with intervals.

    validation = SpanValidation(data, config, metric="span-f1")
    validation.scores(model, scoring).main
    result = evaluate_spans(bundle, read_spanned("test.conllu"))
    result.metrics["span-f1"].value, result.by_depth[2].f1, result.errors.boundary

A span is right if its first word, last word and type are. Gold spans that the model cannot find count as missed: those
of more words than it looks at, of types that it does not know, and those beyond the cut of a truncated text. The
bootstrap resamples texts, not spans.

Selection metrics: span-f1 (the default), precision, recall, macro-f1, outer-f1 and inner-f1. A head with relations also
has relation-f1 (between predicted spans), relation-f1-given-spans (between gold spans), and joint-f1, the mean of
span-f1 and relation-f1, which is then the default. Relations are scored during training, not by `evaluate_spans`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import edges
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.span_records import BINARY, SpannedWords, binary
from larvatus.metrics.classification import F1, divide
from larvatus.metrics.entities import (
    Entities,
    EntityErrors,
    RelationScore,
    Span,
    SpanScore,
    depths,
    relation_f1,
    span_f1,
)
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.spans import NULL, Decoding
from larvatus.models.network import Network
from larvatus.tasks.evaluation.evaluation import (
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    class_rows,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_entities
from larvatus.tasks.evaluation.tables import class_table, entity_error_line
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.decoding import (
    FLOOR,
    SpanCandidates,
    SpanTuple,
    Threshold,
    calibrate_threshold,
    decode_spans,
    kept_relations,
    predict_relations,
)
from larvatus.tasks.spans.sequences import SpanSequences
from larvatus.tasks.spans.spans import (
    ScoredSpans,
    SpannedTexts,
    label_spans,
    scored_spans,
    span_candidates,
    spans_head,
    spans_with_probabilities,
    split_by_text,
)
from larvatus.tasks.validation import Calibration, Scores, fit_calibration

METRICS = ("span-f1", "precision", "recall", "macro-f1", "outer-f1", "inner-f1")
RELATION_METRICS = ("joint-f1", "relation-f1", "relation-f1-given-spans")


def span_metric(config: SpansConfig, asked: str | None) -> str:
    """The metric that decides."""
    return asked or (METRICS[0] if config.relations is None else RELATION_METRICS[0])


@dataclass(frozen=True, eq=False)
class SpanValidation:
    data: SpannedTexts
    config: SpansConfig
    metric: str = METRICS[0]

    def __post_init__(self) -> None:
        known = METRICS if self.config.relations is None else METRICS + RELATION_METRICS
        if self.metric not in known:
            what = "spans" if self.metric not in RELATION_METRICS else "a head that looks for no relations"
            raise UsageError(f"--metric {self.metric} does not score {what}{did_you_mean(self.metric, known)}")

    def both(self, model: Network, scoring: ScoringOptions) -> tuple[list[set[Span]], list[set[Span]]]:
        """Gold spans of each text, those that are longer than the longest too, and the model's."""
        return self._both(self._kept(model, scoring))

    def _kept(self, model: Network, scoring: ScoringOptions) -> list[SpanCandidates]:
        """The spans that are found, by text."""
        return _decoded(span_candidates(model, self.data.encoded, scoring), spans_head(model).config)

    def _both(self, texts: Sequence[SpanCandidates]) -> tuple[list[set[Span]], list[set[Span]]]:
        return (
            [{self._named(span) for span in text} for text in self.data.gold],
            [{self._named(span) for span in spans.spans(np.arange(len(spans)))} for spans in texts],
        )

    def _named(self, span: SpanTuple) -> tuple[int, int, str]:
        return span[0], span[1], (*self.config.labels, *self.data.unknown.names)[span[2]]

    def relations(self, model: Network, scoring: ScoringOptions, *, given: bool = False) -> RelationScore:
        """Scores against all gold relations, also those not trained on; between predicted spans, or gold spans."""
        return self._relation_score(model, self._given(model, scoring) if given else self._kept(model, scoring))

    def _given(self, model: Network, scoring: ScoringOptions) -> list[SpanCandidates]:
        """The gold spans, by text, as far as they are looked at."""
        parts = [_gold_of(batch) for batch in scored_spans(model, self.data.encoded, scoring, self.data.learnt)]
        return split_by_text(parts, len(self.data))

    def _relation_score(self, model: Network, texts: Sequence[SpanCandidates]) -> RelationScore:
        head = spans_head(model)
        known = head.config.relations.labels if head.config.relations is not None else ()
        names = (*known, *self.data.unknown_relations.names)
        gold = [{(self._named(a), self._named(b), names[label]) for a, b, label in text} for text in self.data.related]
        guess = []
        for kept in texts:
            spans = [self._named(span) for span in kept.spans(np.arange(len(kept)))]
            guess.append({(spans[a], spans[b], names[label]) for a, b, label, _ in kept_relations(head, kept)})
        return relation_f1(gold, guess)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        """All metrics and the loss, from one pass over the texts."""
        config = spans_head(model).config
        likely, golds = [], []
        total = size = 0.0
        for batch in scored_spans(model, self.data.encoded, scoring, self.data.learnt):
            sure = spans_with_probabilities(batch, config)
            likely.append((batch.owners[sure.numbers], sure))
            if config.relations is not None:
                golds.append(_gold_of(batch))
            part, count = batch.loss()
            total, size = total + part, size + count
        kept = _decoded(split_by_text(likely, len(self.data)), config)
        values = span_scores(span_f1(*self._both(kept)))
        if config.relations is not None:
            strict = self._relation_score(model, kept).micro.f1
            given = self._relation_score(model, split_by_text(golds, len(self.data))).micro.f1
            joint = (values["span-f1"] + strict) / 2
            values |= dict(zip(RELATION_METRICS, (joint, strict, given), strict=True))
        return Scores(metric=self.metric, values=values, validation_loss=total / size if size else math.nan)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """Temperature that scores are divided by, so that probabilities of NULL and the types are right on average."""
        parts = list(scored_spans(model, self.data.encoded, scoring, self.data.learnt))
        sizes = [len(part.gold) for part in parts]
        if not sum(sizes):
            return Calibration()
        logits, gold = (np.concatenate(arrays) for arrays in zip(*((p.scores, p.gold) for p in parts), strict=True))
        return fit_calibration(logits, gold, kind="softmax", groups=np.repeat(np.arange(len(parts)), sizes))

    def read_once(self, model: Network, scoring: ScoringOptions) -> SpanValidation:
        """Frozen or not, the encoder is run each time."""
        return self

    def threshold(self, model: Network, scoring: ScoringOptions, *, precision: float | None = None) -> Threshold:
        """The threshold with the best F1, or the lowest with a wished precision."""
        likely = span_candidates(model, self.data.encoded, scoring, floor=FLOOR)
        return calibrate_threshold(
            likely, [set(text) for text in self.data.gold], self.config.decoding, precision=precision
        )

    def relation_threshold(self, model: Network, scoring: ScoringOptions) -> Threshold:
        """The threshold of relations with the best F1, between the spans that are found."""
        head = spans_head(model)
        pairs, gold = [], []
        for kept, text in zip(self._kept(model, scoring), self.data.related, strict=True):
            spans = kept.spans(np.arange(len(kept)))
            number = {span: n for n, span in enumerate(spans)}
            pairs.append(predict_relations(head, kept, floor=FLOOR))
            # a gold relation of spans that were not found has numbers that nothing else has
            lost = ((-n, -n) for n in range(1, len(text) + 1))
            gold.append(
                {
                    (number[a], number[b], label) if a in number and b in number else (*next(lost), label)
                    for a, b, label in text
                }
            )
        return calibrate_threshold(pairs, gold, "free")


def _decoded(texts: Sequence[SpanCandidates], config: SpansConfig) -> list[SpanCandidates]:
    """The spans of each text that are kept."""
    return [spans.take(decode_spans(spans, config.decoding, config.threshold)) for spans in texts]


def _gold_of(scored: ScoredSpans) -> tuple[Ints, SpanCandidates]:
    """The gold spans among those that were scored, with the numbers of their texts."""
    at = np.flatnonzero(scored.gold != NULL)
    spans = SpanCandidates(scored.first[at], scored.end[at], scored.gold[at] - 1, np.zeros(len(at)), at)
    return scored.owners[at], scored.with_sides(spans)


def span_scores(score: SpanScore) -> dict[str, float]:
    """The metrics by name; inner spans are those at depth 2 and deeper, weighted by their number."""
    micro, inner = score.all.micro, [at_depth for depth, at_depth in score.by_depth.items() if depth > 1]
    support = sum(at_depth.support for at_depth in inner)
    return {
        "span-f1": micro.f1,
        "precision": micro.precision,
        "recall": micro.recall,
        "macro-f1": score.all.macro.f1,
        "outer-f1": score.by_depth[1].f1 if 1 in score.by_depth else 0.0,
        "inner-f1": sum(at_depth.f1 * at_depth.support for at_depth in inner) / support if support else 0.0,
    }


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
    """An outer span has depth 1, spans inside it depth 2, and so on."""
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

    def details(self) -> dict[str, Any]:
        return {
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
        }


def evaluate_spans(
    bundle: Bundle, data: Dataset[SpannedWords], options: EvaluationOptions = EvaluationOptions()
) -> SpanEvaluation:
    """Evaluate a model that finds spans; types are ignored if the model has a single one."""
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
        metrics=options.intervals(rows),
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
    return int((encoded.begins + encoded.words.counts)[last].sum())


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
    """Metrics of two models, text by text, counted together so that both have the same types and depths."""
    if first.gold_spans != second.gold_spans:
        raise UsageError(f"{first.model} and {second.model} do not find the same types; compare two that do")
    count = len(first.gold_spans)
    rows = resampled_spans([*first.gold_spans, *second.gold_spans], [*first.found_spans, *second.found_spans])
    return (
        {name: dataclasses.replace(metric, rows=metric.rows[:count]) for name, metric in rows.items()},
        {name: dataclasses.replace(metric, rows=metric.rows[count:]) for name, metric in rows.items()},
    )
