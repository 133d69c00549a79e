"""What a model that writes is worth on examples: accuracy and macro F1 of classes, or F1 and exact match of texts.

    evaluation = evaluate_writing(bundle, read_pairs("test.tsv"))
    evaluation.metrics["f1"].value, evaluation.answers[0]

Examples are drawn by the bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.writing import TextToText, TextToTextConfig
from larvatus.tasks.encoding.unknown import UnknownLabels
from larvatus.tasks.evaluation.evaluated import Evaluation, PairedMetrics, plain_metrics, read_statistics
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.scoring import head_as
from larvatus.tasks.write.encode import encode_sources
from larvatus.tasks.write.examples import WritingExample
from larvatus.tasks.write.generating import write_texts
from larvatus.tasks.write.scores import Golds, is_right, resampled_texts

SHOWN = 5
"""Wrong answers that are shown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WritingEvaluation(Evaluation):
    """Of texts that are written."""

    data: Dataset[WritingExample]
    classes: tuple[str, ...]
    """What may be written, where that is one of a few texts."""
    golds: tuple[tuple[str, ...], ...]
    """[E] the right texts."""
    answers: tuple[str, ...]
    """[E] what was written."""
    unfinished: int
    """Texts that were ended by the number of their tokens."""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """[E] whether what was written is right as it stands."""
        return np.array([is_right(*row) for row in zip(self.golds, self.answers, strict=True)], np.bool_)

    @property
    def other(self) -> int:
        """Answers that are none of the classes."""
        return sum(answer not in self.classes for answer in self.answers) if self.classes else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data.source,
            "metrics": plain_metrics(self.metrics),
            "classes": list(self.classes),
            "answers_of_no_class": self.other,
            "unfinished": self.unfinished,
            "read": self.reading.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        if self.other:
            yield f"\n{self.other:,} of {len(self.data):,} answers are none of the labels; they count as wrong"
        if self.unfinished:
            yield f"\n{self.unfinished:,} of {len(self.data):,} texts were ended by the number of their tokens"
        wrong = np.flatnonzero(~self.right)[:SHOWN].tolist()
        if wrong:
            rows = tuple((str(self.data.examples[n].place), self.golds[n][0][:60], self.answers[n][:60]) for n in wrong)
            yield Table(("place", "right", "written"), rows, blank_before=True)

    def paired(self, other: WritingEvaluation) -> PairedMetrics:
        first, second = (_rows(evaluation, self.classes) for evaluation in (self, other))
        return PairedMetrics(first, second, (self.right, other.right))


def _rows(evaluation: WritingEvaluation, classes: tuple[str, ...]) -> dict[str, ResampledMetric]:
    return resampled_texts(evaluation.golds, evaluation.answers, classes=classes)


def writer_of(bundle: Bundle) -> TextToTextConfig:
    """How a model that was fine-tuned from text to text reads and writes."""
    return head_as(bundle.network, TextToText, "write texts", str(bundle.path)).config


def gold_targets(examples: Dataset[WritingExample], config: TextToTextConfig) -> tuple[tuple[str, ...], ...]:
    """The right texts of each example, labels as their words."""
    return tuple(tuple(map(config.word, example.targets)) for example in examples)


def unknown_classes(data: Dataset[WritingExample], golds: Golds, config: TextToTextConfig) -> UnknownLabels:
    """Labels that no training example had, where labels are what is written."""
    if not config.classes:
        return UnknownLabels(total=len(data))
    unknown = [(number, right[0]) for number, right in enumerate(golds) if right[0] not in config.classes]
    first = ""
    if unknown:
        number, name = unknown[0]
        known = ", ".join(config.classes)
        first = f"{data.examples[number].place}: the model does not write {name!r} (it knows {known})"
    return UnknownLabels.of(unknown, total=len(data), first=first)


def evaluate_writing(
    bundle: Bundle, data: Dataset[WritingExample], options: EvaluationOptions = EvaluationOptions()
) -> WritingEvaluation:
    """A model that was fine-tuned from text to text."""
    config = writer_of(bundle)
    golds = gold_targets(data, config)
    unknown = unknown_classes(data, golds, config)
    unknown.check(strict=options.strict)
    sequences = encode_sources(bundle, data.examples, config, options.windows(bundle))
    bundle.network.to(options.scoring.device)
    written = write_texts(
        bundle.network,
        bundle.tokenizer,
        sequences,
        most=config.most,
        beams=options.beams or 1,
        scoring=options.scoring,
    )
    answers = tuple(answer.text for answer in written)
    rows = resampled_texts(golds, answers, classes=config.classes)
    note = unknown.note("texts", "labelled with classes")
    return WritingEvaluation(
        model=str(bundle.path),
        data=data,
        metrics={name: metric.interval(samples=options.samples, seed=options.seed) for name, metric in rows.items()},
        reading=read_statistics(sequences),
        notes=(note,) if note else (),
        classes=config.classes,
        golds=golds,
        answers=answers,
        unfinished=sum(answer.ended == "length" for answer in written),
    )
