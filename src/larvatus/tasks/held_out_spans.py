"""What a model is worth on held-out spans: strict F1, over all and by depth; temperature and threshold.

    held = HeldOutSpans(data, config, metric="span-f1")
    held.scores(model, scoring).main
    held.score(model, scoring).by_depth[2].f1

Metrics that may decide: span-f1 (the default), precision, recall, macro-f1, outer-f1 and inner-f1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from larvatus.errors import UsageError, did_you_mean
from larvatus.metrics.calibration import fit_temperature
from larvatus.metrics.spans import Span, SpanScore, span_f1
from larvatus.objectives import Pretraining, SpansConfig
from larvatus.tasks.held_out import Calibration
from larvatus.tasks.loop import Scores
from larvatus.tasks.scoring import Scoring
from larvatus.tasks.span_decoding import FLOOR, Threshold, calibrate_threshold, decode_spans
from larvatus.tasks.spans import SpannedTexts, scored_spans, span_candidates, spans_head

METRICS = ("span-f1", "precision", "recall", "macro-f1", "outer-f1", "inner-f1")


@dataclass(frozen=True, eq=False)
class HeldOutSpans:
    data: SpannedTexts
    config: SpansConfig
    metric: str = METRICS[0]

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise UsageError(f"--metric {self.metric} does not score spans{did_you_mean(self.metric, METRICS)}")

    def both(self, model: Pretraining, scoring: Scoring) -> tuple[list[set[Span]], list[set[Span]]]:
        """Gold spans of each text, those that are longer than the longest too, and the model's."""
        config = spans_head(model).config
        names = np.array(config.labels, dtype=object)
        found = [
            one.spans(decode_spans(one, config.decoding, config.threshold))
            for one in span_candidates(model, self.data.encoded, scoring)
        ]
        gold, guess = (
            [{(start, end, str(names[label])) for start, end, label in text} for text in texts]
            for texts in (self.data.gold, found)
        )
        return gold, guess

    def score(self, model: Pretraining, scoring: Scoring) -> SpanScore:
        return span_f1(*self.both(model, scoring))

    def scores(self, model: Pretraining, scoring: Scoring) -> Scores:
        return Scores(metric=self.metric, values=span_values(self.score(model, scoring)))

    def calibration(self, model: Pretraining, scoring: Scoring) -> Calibration:
        return Calibration(temperature=self.temperature(model, scoring))

    def read_once(self, model: Pretraining, scoring: Scoring) -> HeldOutSpans:
        """Frozen or not, the encoder is run each time."""
        return self

    def temperature(self, model: Pretraining, scoring: Scoring) -> float:
        """By which scores must be divided so that probabilities of NULL and the types are right on average."""
        parts = list(scored_spans(model, self.data.encoded, scoring, self.data.learnt))
        if not sum(len(one.gold) for one in parts):
            return 1.0
        return fit_temperature(
            np.concatenate([one.scores for one in parts]), np.concatenate([one.gold for one in parts])
        )

    def threshold(self, model: Pretraining, scoring: Scoring, *, precision: float | None = None) -> Threshold:
        """The threshold with the best F1, or the lowest with a wished precision."""
        found = span_candidates(model, self.data.encoded, scoring, floor=FLOOR)
        return calibrate_threshold(
            found, [set(text) for text in self.data.gold], self.config.decoding, precision=precision
        )


def span_values(score: SpanScore) -> dict[str, float]:
    """The metrics by name; inner spans are those at depth 2 and deeper, weighted by their number."""
    micro, inner = score.all.micro, [one for depth, one in score.by_depth.items() if depth > 1]
    support = sum(one.support for one in inner)
    return {
        "span-f1": micro.f1,
        "precision": micro.precision,
        "recall": micro.recall,
        "macro-f1": score.all.macro.f1,
        "outer-f1": score.by_depth[1].f1 if 1 in score.by_depth else 0.0,
        "inner-f1": sum(one.f1 * one.support for one in inner) / support if support else 0.0,
    }
