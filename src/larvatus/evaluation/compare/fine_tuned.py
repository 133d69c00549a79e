"""What fine-tuning came to: one record for each model, labelled set and seed, and one for what could not be.

    tuned_rows(results.tuned, results.sets, labels)      # "SST-2 accuracy": {"bert": 81.2% ± 0.6, [78.7, 83.8]}, …

The mean and the deviation are over all seeds, of pretraining and of fine-tuning. The interval is that of the examples
that were scored (95%, by the bootstrap): its ends are the means of those of the single models.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from larvatus.core.settings import Settings
from larvatus.evaluation.compare.values import Better, Kind, MetricRow, SeedMean
from larvatus.tasks.evaluation.resampling import LOWER_IS_BETTER

GROUP = "fine-tuned"
AVERAGE = "average"


class SetFacts(Settings):
    """A labelled set, the same for all models."""

    name: str
    task: str
    train: int
    """Examples to learn from."""
    scored: int
    """Examples that the scores are of."""
    source: str
    """Files that were scored."""
    is_test: bool = False
    """Whether these are others than those by which the best weights were chosen."""


class FineTuneScore(Settings):
    """One pretrained model, fine-tuned on one labelled set from one seed."""

    label: str
    seed: int
    """Of pretraining."""
    set: str
    task: str
    tuning_seed: int
    metric: str
    value: float | None
    """None where it is not defined: a correlation with answers that are all the same."""
    low: float | None
    """End of the 95% interval, over the examples that were scored; so is `high`."""
    high: float | None
    steps: int
    trained: int
    """Parameters that learnt."""
    training_seconds: float
    """Spent on training steps and on scoring held-out examples between them."""
    seconds: float
    """Of all: reading, training, scoring."""
    layers: tuple[float, ...] = ()
    """How much the head takes of each layer that it mixes, the lowest first; empty where it reads one."""


class FineTuneRefusal(Settings):
    """A model that could not be fine-tuned on a set, and why."""

    label: str
    set: str
    why: str


def fine_tuned_rows(tuned: Sequence[FineTuneScore], sets: Sequence[SetFacts], labels: Sequence[str]) -> list[MetricRow]:
    """A row for each set, and where there are several the average of them, for models that did all."""
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
