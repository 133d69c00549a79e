"""Evaluation of fine-tuned models on labelled examples: options, and typed results for dictionaries and for people.

Each task has its own kind of result (`tasks/*/evaluation.py`); `comparison.py` compares two of a kind. Intervals are of
95%, by the bootstrap over examples. Long texts are windowed as in fine-tuning.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from larvatus.core import notebook
from larvatus.core.arrays import Ints
from larvatus.core.tables import ReportPart, Table, Tabular, render_text
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.calibration import Reliability
from larvatus.metrics.classification import F1
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval
from larvatus.models.bundle.claims import Claim
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.evaluation.tables import ConfusedPair, format_score, reliability_table
from larvatus.tasks.scoring import ScoringOptions


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    merge: Merge = "mean"
    """How the windows of a long text are merged."""
    length: int | None = None
    """Tokens of a window; None: as many as the model has positions."""
    truncate: bool = False
    """Read only the first window of a long text."""
    repair: bool = False
    """Illegal sequences of gold tags are read as conlleval does, not refused."""
    strict: bool = False
    """Labels that the model does not know are refused, not counted as wrong."""
    beams: int | None = None
    """Beam size of a model that generates text; None: greedy."""
    samples: int = 1000
    """Bootstrap samples."""
    seed: int = 0

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""
        return WindowOptions.of(bundle, length=self.length, truncate=self.truncate)

    def intervals(self, metrics: Mapping[str, ResampledMetric]) -> dict[str, Interval]:
        """Each metric with its bootstrap interval."""
        return {name: metric.interval(samples=self.samples, seed=self.seed) for name, metric in metrics.items()}


@dataclass(frozen=True, kw_only=True)
class ReadStatistics:
    """How much of the examples the model read."""

    examples: int
    long: int
    """Examples that are longer than a window."""
    windows: int
    tokens: int
    read: int
    """Tokens that were read."""
    words: int | None = None
    """Words of tagged sentences."""
    words_read: int | None = None

    def __str__(self) -> str:
        share = self.read / self.tokens if self.tokens else 1.0
        share = math.floor(share * 1000) / 10  # never 100% of a text that was cut
        said = f"{self.read:,} of {self.tokens:,} tokens read ({share:g}%)"
        if self.words is not None and self.words_read is not None:
            said += f", {self.words_read:,} of {self.words:,} words"
            if self.words_read < self.words:
                said += " (the others count as wrong)"
        if self.long:
            said += f" · {self.long:,} of {self.examples:,} examples are longer than a window"
        return said

    def to_dict(self) -> dict[str, Any]:
        counts = {"examples": self.examples, "longer_than_a_window": self.long, "windows": self.windows}
        counts |= {"tokens": self.tokens, "tokens_read": self.read}
        if self.words is None or self.words_read is None:
            return counts
        return {**counts, "words": self.words, "words_read": self.words_read}


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationReport:
    """Calibration of the probabilities of texts or of single words."""

    temperature: float
    nll: float
    """Negative log-likelihood of the gold labels."""
    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        """Expected calibration error."""
        return self.reliability.ece

    def shown(self) -> Iterator[ReportPart]:
        yield (
            f"\ncalibration: ECE {self.ece:.4f} · NLL {self.nll:.4f} · Brier {self.brier:.4f} "
            f"(temperature {self.temperature:.3g})"
        )
        yield reliability_table(self.reliability)

    def to_dict(self) -> dict[str, Any]:
        table = self.reliability
        bins = zip(
            table.edges[:-1].tolist(),
            table.edges[1:].tolist(),
            table.count.tolist(),
            table.confidence.tolist(),
            table.accuracy.tolist(),
            strict=True,
        )
        names = ("low", "high", "count", "confidence", "accuracy")
        return {
            "temperature": self.temperature,
            "ece": self.ece,
            "nll": self.nll,
            "brier": self.brier,
            "reliability": [dict(zip(names, row, strict=True)) for row in bins if row[2]],
        }


class PairedMetrics(NamedTuple):
    """Metrics of two models, example by example."""

    first: dict[str, ResampledMetric]
    second: dict[str, ResampledMetric]
    """By metric; both have the same metrics."""
    right: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None
    """[E] whether each example is answered rightly, by either; None where examples are not right or wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation(Tabular, ABC):
    """Scores of a fine-tuned model on labelled examples."""

    model: str
    data: Dataset[Any]
    metrics: dict[str, Interval]
    reading: ReadStatistics
    notes: tuple[str, ...] = ()
    """Notes for people, such as examples that the model cannot answer correctly."""
    claims: tuple[Claim, ...] = ()
    """The metrics as a model card takes them over: with data, settings and versions."""

    @property
    def headline(self) -> str:
        """The main metric."""
        return next(iter(self.metrics))

    def figures(self) -> Iterator[Figure]:
        """Each metric with its interval."""
        for name, metric in self.metrics.items():
            yield Figure.of(name, metric)

    def _repr_html_(self) -> str:
        return notebook.intervals(self.metrics, title=f"{self.model} · {self.data.source}")

    def __str__(self) -> str:
        return render_text(self.parts())

    def parts(self) -> Iterator[ReportPart]:
        """Everything that `print` and `larvatus evaluate` show."""
        yield f"{self.model} on {self.data.describe()}"
        cells = tuple(
            (name, format_score(each.value), f"{format_score(each.low)} to {format_score(each.high)}")
            for name, each in self.metrics.items()
        )
        yield Table(("metric", "score", "95% interval"), cells)
        yield from self.shown()
        yield f"\n{self.reading}"

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"model": self.model, "data": self.data.source, **self.details(), "read": self.reading.to_dict()}

    def details(self) -> dict[str, Any]:
        """The fields of `to_dict` between the data and how much of them was read."""
        return {"metrics": plain_metrics(self.metrics)}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each metric, with its 95% interval."""
        return [{"metric": name, **row} for name, row in plain_metrics(self.metrics).items()]

    @abstractmethod
    def shown(self) -> Iterator[ReportPart]:
        """Lines and tables between the table of metrics and the line on how much was read."""

    @abstractmethod
    def paired(self, other: Any) -> PairedMetrics:
        """Metrics of this and another model of the same task, example by example, for tests of their difference."""

    @property
    def predictions(self) -> dict[str, str] | None:
        """Answers by id, as official scorers read them, where there are such."""
        return None

    @property
    def confusions(self) -> tuple[Ints, tuple[str, ...]] | None:
        """Confusion matrix [gold, answer] and the names of its labels; None if there is none."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class ResampledEvaluation(Evaluation):
    """Evaluation that keeps what each example adds to the metrics."""

    resampled: dict[str, ResampledMetric]

    def paired(self, other: ResampledEvaluation) -> PairedMetrics:
        return PairedMetrics(self.resampled, other.resampled)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelEvaluation(Evaluation):
    """Evaluation of a model that gives texts or words labels."""

    labels: tuple[str, ...]
    """Labels of the model, then those that only the examples have."""
    unknown: tuple[str, ...]
    """The latter: the model does not know them, so they count as wrong."""
    confusion: Ints | None
    """[K, K] gold by answer, where each text or word has one label."""
    calibration: CalibrationReport | None

    @property
    def confusions(self) -> tuple[Ints, tuple[str, ...]] | None:
        return None if self.confusion is None else (self.confusion, self.labels)

    def calibration_and_notes(self) -> Iterator[ReportPart]:
        """What follows the tables of labels."""
        if self.calibration is not None:
            yield from self.calibration.shown()
        yield from (f"\n{line}" for line in self.notes)

    def label_dict(self) -> dict[str, Any]:
        """Labels, notes and confusion matrix, for `to_dict`."""
        matrix = None if self.confusion is None else self.confusion.tolist()
        labels, unknown = list(self.labels), list(self.unknown)
        return {"labels": labels, "unknown": unknown, "notes": list(self.notes), "confusion": matrix}


def plain_metrics(metrics: dict[str, Interval]) -> dict[str, Any]:
    return {name: plain(dataclasses.asdict(interval)) for name, interval in metrics.items()}


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """The record with None for NaN and infinity, which JSON lacks."""
    known = {name: not isinstance(value, float) or math.isfinite(value) for name, value in record.items()}
    return {name: value if known[name] else None for name, value in record.items()}


def class_rows(scores: dict[str, F1]) -> list[dict[str, Any]]:
    return [{"label": label, **dataclasses.asdict(score)} for label, score in scores.items()]


def most_confused(table: Ints, labels: tuple[str, ...]) -> tuple[ConfusedPair, ...]:
    """Pairs of gold and answer that differ, the most frequent first."""
    wrong = table - np.diag(np.diagonal(table))
    rows, columns = np.nonzero(wrong)
    order = np.argsort(-wrong[rows, columns], kind="stable")
    return tuple(
        ConfusedPair(
            gold=labels[rows[at]],
            found=labels[columns[at]],
            count=int(wrong[rows[at], columns[at]]),
            share=float(wrong[rows[at], columns[at]] / table[rows[at]].sum()),
        )
        for at in order.tolist()
    )


def read_statistics(sequences: Sequences, *, words: int | None = None, words_read: int | None = None) -> ReadStatistics:
    return ReadStatistics(
        examples=len(sequences),
        long=int(((sequences.parts > 1) | (sequences.read < sequences.tokens)).sum()),
        windows=int(sequences.parts.sum()),
        tokens=int(sequences.tokens.sum()),
        read=int(sequences.read.sum()),
        words=words,
        words_read=words_read,
    )
