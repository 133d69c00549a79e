"""Scores after fine-tuning, and rows of a comparison's table: means and deviations over seeds.

    fine_tuned_rows(results.tuned, results.sets, labels)      # "SST-2 accuracy": {"bert": 81.2% ± 0.6, [78.7, 83.8]}, …

    >>> SeedMean.of([0.5, 0.7]).mean
    0.6

Mean and deviation are over all seeds, of pretraining and of fine-tuning. The 95% interval is over the scored examples,
by the bootstrap: its ends are means of the ends of the single models.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from larvatus.core.settings import Settings
from larvatus.metrics.intervals import NORMAL_95, t_quantile
from larvatus.tasks.evaluation.resampling import LOWER_IS_BETTER

Kind = Literal["count", "number", "share"]
Better = Literal["lower", "higher"] | None


class SeedMean(Settings):
    mean: float
    deviation: float | None = None
    """Standard deviation over seeds (n − 1); None for a single seed."""
    low: float | None = None
    """Lower end of the 95% interval over examples or passages, if known; `high` is the upper end."""
    high: float | None = None
    seeds: int = 1

    @classmethod
    def of(cls, numbers: Sequence[float], *, errors: Sequence[float] = ()) -> SeedMean | None:
        """Mean over seeds; `errors` are the standard errors over examples, one per seed."""
        if not numbers:
            return None
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        mean = statistics.fmean(numbers)
        if not errors:
            return cls(mean=mean, deviation=deviation, seeds=len(numbers))
        half = NORMAL_95 * statistics.fmean(errors)
        return cls(mean=mean, deviation=deviation, low=mean - half, high=mean + half, seeds=len(numbers))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The wider of the intervals over seeds and over examples; None if neither is known.

        >>> SeedMean(mean=0.5, low=0.4, high=0.6).interval
        (0.4, 0.6)
        """
        ends = [] if self.low is None or self.high is None else [(self.low, self.high)]
        if self.deviation is not None:
            half = t_quantile(0.95, self.seeds - 1) * self.deviation / math.sqrt(self.seeds)
            ends.append((self.mean - half, self.mean + half))
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


class MetricRow(Settings):
    """One metric of all candidates."""

    name: str
    group: str
    kind: Kind
    """Format of the values."""
    better: Better = None
    """Better direction; None if the values do not compare."""
    values: dict[str, SeedMean | None]

    @property
    def best(self) -> str | None:
        """The best candidate, if its interval overlaps with no other; else None."""
        known = {label: value for label, value in self.values.items() if value and not math.isnan(value.mean)}
        intervals = {label: value.interval for label, value in known.items()}
        if self.better is None or len(known) < 2:
            return None
        sign = -1 if self.better == "lower" else 1
        first, *others = sorted(known, key=lambda label: -sign * known[label].mean)
        ours = intervals[first]
        if ours is None:
            return None
        for label in others:
            theirs = intervals[label]
            if theirs is None or not (ours[0] > theirs[1] if sign > 0 else ours[1] < theirs[0]):
                return None
        return first


GROUP = "fine-tuned"
AVERAGE = "average"


class SetFacts(Settings):
    """A labelled set, the same for all models."""

    name: str
    task: str
    train: int
    """Number of training examples."""
    scored: int
    """Number of scored examples."""
    source: str
    """Files of the scored examples."""
    is_test: bool = False
    """Whether a test set is scored, and not the validation examples."""


class FineTuneScore(Settings):
    """One pretrained model, fine-tuned on one labelled set from one seed."""

    label: str
    seed: int
    """Seed of pretraining."""
    set: str
    task: str
    tuning_seed: int
    metric: str
    value: float | None
    """None if it is not defined, as a correlation with constant answers."""
    low: float | None
    """Lower end of the 95% interval over the scored examples; `high` is the upper end."""
    high: float | None
    steps: int
    trained: int
    """Number of trainable parameters."""
    training_seconds: float
    """Seconds of training steps and of validation between them."""
    seconds: float
    """Total seconds: reading, training, scoring."""
    layers: tuple[float, ...] = ()
    """Weights of the layers that the head mixes, lowest first; empty if it reads one layer."""


class FineTuneRefusal(Settings):
    """A model that could not be fine-tuned on a set, and why."""

    label: str
    set: str
    why: str


def fine_tuned_rows(tuned: Sequence[FineTuneScore], sets: Sequence[SetFacts], labels: Sequence[str]) -> list[MetricRow]:
    """A row for each set and, if there are several, their average for models that have all."""
    rows = []
    for facts in sets:
        of_set = [result for result in tuned if result.set == facts.name]
        metric = of_set[0].metric if of_set else ""
        better: Better = "lower" if metric in LOWER_IS_BETTER else "higher"
        values = {label: _value([result for result in of_set if result.label == label]) for label in labels}
        kind: Kind = "number" if metric in LOWER_IS_BETTER else "share"
        rows.append(
            MetricRow(name=f"{facts.name} {metric}".strip(), group=GROUP, kind=kind, better=better, values=values)
        )
    if len(rows) > 1 and all(row.kind == "share" for row in rows):
        averages = {label: _average([row.values[label] for row in rows]) for label in labels}
        rows.append(MetricRow(name=AVERAGE, group=GROUP, kind="share", better="higher", values=averages))
    return rows


def _value(results: Sequence[FineTuneScore]) -> SeedMean | None:
    value, low, high = (
        SeedMean.of([number for number in numbers if number is not None])
        for numbers in (
            [result.value for result in results],
            [result.low for result in results],
            [result.high for result in results],
        )
    )
    if value is None:
        return None
    ends = (low.mean if low else None, high.mean if high else None)
    return SeedMean(mean=value.mean, deviation=value.deviation, low=ends[0], high=ends[1], seeds=value.seeds)


def _average(values: Sequence[SeedMean | None]) -> SeedMean | None:
    means = [value.mean for value in values if value is not None]
    return SeedMean(mean=statistics.fmean(means)) if len(means) == len(values) else None
