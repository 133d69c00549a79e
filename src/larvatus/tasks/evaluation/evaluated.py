"""What an evaluation found: typed records that become dictionaries. `evaluation.py` makes them, `comparison.py` holds
two of them against each other."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus import notebook
from larvatus.arrays import Floats, Ints
from larvatus.heads.classification import Kind
from larvatus.labelled.records import Dataset, TaggedExample, TextExample
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.calibration import Reliability
from larvatus.metrics.classification import F1
from larvatus.metrics.entities import EntityErrors
from larvatus.text.tag_schemes import Entity, Scheme


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How much of the examples the model has read."""

    examples: int
    long: int
    """Examples that are longer than a window."""
    windows: int
    tokens: int
    read: int
    """Tokens that were read."""
    words: int | None = None
    """Of tagged sentences."""
    words_read: int | None = None

    def to_dict(self) -> dict[str, Any]:
        found = {"examples": self.examples, "longer_than_a_window": self.long, "windows": self.windows}
        found |= {"tokens": self.tokens, "tokens_read": self.read}
        if self.words is None or self.words_read is None:
            return found
        return {**found, "words": self.words, "words_read": self.words_read}


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Whether probabilities mean what they say; of answers to texts, or to single words."""

    temperature: float
    nll: float
    """Negative log-likelihood of the gold labels."""
    brier: float
    reliability: Reliability

    @property
    def ece(self) -> float:
        """Expected calibration error."""
        return self.reliability.ece

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


@dataclass(frozen=True)
class Confused:
    gold: str
    found: str
    count: int
    share: float
    """Of the words with this gold tag."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextEvaluation:
    model: str
    data: Dataset[TextExample]
    kind: Kind
    labels: tuple[str, ...]
    """Of the model, then those that only the examples have."""
    unknown: tuple[str, ...]
    """The latter: the model does not know them, so they count as wrong."""
    notes: tuple[str, ...]
    """What was done about them, for people."""
    metrics: dict[str, Interval]
    by_class: dict[str, F1]
    """Nothing of a number."""
    confusion: Ints | None
    """[K, K] gold by answer, where each text has one class."""
    calibration: Calibration | None
    """None of a number."""
    reading: Reading
    gold: npt.NDArray[np.generic]
    """[E] classes or numbers, [E, K] truths; so are the answers `found`."""
    found: npt.NDArray[np.generic]
    probabilities: Floats
    """[E, K] calibrated; of a regression the number."""

    def _repr_html_(self) -> str:
        return notebook.intervals(self.metrics, title=f"{self.model} · {self.data.source}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "kind": self.kind,
            "metrics": plain_metrics(self.metrics),
            "classes": class_rows(self.by_class),
            "labels": list(self.labels),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "read": self.reading.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TagEvaluation:
    model: str
    data: Dataset[TaggedExample]
    scheme: Scheme
    labels: tuple[str, ...]
    """Of the model, then those that only the examples have."""
    unknown: tuple[str, ...]
    """The latter: the model does not know them, so they count as wrong."""
    notes: tuple[str, ...]
    """What was done about them, for people."""
    metrics: dict[str, Interval]
    by_type: dict[str, F1]
    """Of entities, read leniently; nothing where tags spell none."""
    errors: EntityErrors | None
    """Of entities."""
    by_tag: dict[str, F1]
    """Of the words that were read."""
    confusion: Ints
    """[K, K] words read: gold tag by answer."""
    confused: tuple[Confused, ...]
    """The most frequent first."""
    calibration: Calibration | None
    """Of words; None where none was read."""
    reading: Reading
    right: Ints
    """[E] words of each sentence that are tagged rightly, of `words` [E]."""
    words: Ints
    gold_entities: list[list[Entity]]
    found_entities: list[list[Entity]]
    """Of each sentence, read leniently, as `predict` gives them."""
    gold_strict: list[list[Entity]]
    found_strict: list[list[Entity]]
    """Of each sentence, those that the scheme allows."""
    tags: list[list[str]]
    """The model's, of the words of each sentence that it has read."""

    def _repr_html_(self) -> str:
        return notebook.intervals(self.metrics, title=f"{self.model} · {self.data.source}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "scheme": self.scheme,
            "metrics": plain_metrics(self.metrics),
            "types": class_rows(self.by_type),
            "errors": None if self.errors is None else dataclasses.asdict(self.errors),
            "tags": class_rows(self.by_tag),
            "labels": list(self.labels),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "confusion": self.confusion.tolist(),
            "confused": [dataclasses.asdict(one) for one in self.confused],
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "read": self.reading.to_dict(),
        }


def plain_metrics(metrics: dict[str, Interval]) -> dict[str, Any]:
    return {name: plain(dataclasses.asdict(one)) for name, one in metrics.items()}


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """What JSON can say: it has neither NaN nor infinity."""
    known = {name: not isinstance(value, float) or math.isfinite(value) for name, value in record.items()}
    return {name: value if known[name] else None for name, value in record.items()}


def class_rows(found: dict[str, F1]) -> list[dict[str, Any]]:
    return [{"label": label, **dataclasses.asdict(one)} for label, one in found.items()]


def right_answers(found: TextEvaluation) -> npt.NDArray[np.bool_]:
    """[E] whether each text has its class, or all its labels."""
    same = np.asarray(found.gold == found.found)
    return same if same.ndim == 1 else np.asarray(same.all(1))
