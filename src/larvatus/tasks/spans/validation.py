"""What a model is worth on held-out spans: strict F1, over all and by depth; temperature and threshold.

    held = SpanValidation(data, config, metric="span-f1")
    held.scores(model, scoring).main
    held.score(model, scoring).by_depth[2].f1

Metrics that may decide: span-f1 (the default), precision, recall, macro-f1, outer-f1 and inner-f1. Where relations
are looked for, too: relation-f1 (of spans that were found), relation-f1-given-spans (of the gold spans), and joint-f1,
the mean of span-f1 and relation-f1, which is then the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.metrics.entities import RelationScore, Span, SpanScore, relation_f1, span_f1
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.spans import NULL
from larvatus.models.network import Network
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.decoding import FLOOR, SpanCandidates, SpanTuple, Threshold, calibrate_threshold, decode_spans
from larvatus.tasks.spans.relations import kept_relations, predict_relations
from larvatus.tasks.spans.spans import (
    ScoredSpans,
    SpannedTexts,
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

    def score(self, model: Network, scoring: ScoringOptions) -> SpanScore:
        return span_f1(*self.both(model, scoring))

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
    """Those of each text that are kept."""
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
