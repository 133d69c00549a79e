"""Scores of a model that generates text, during and after training: of classes, or of texts that may be right in part.

    evaluation = evaluate_writing(bundle, read_pairs("test.tsv"))
    evaluation.metrics["f1"].value, evaluation.answers[0]

Classes: accuracy and macro F1; an answer that is no class is wrong. Texts: `f1` of their words as in SQuAD,
`exact-match` of the text except for spaces, and `squad-exact`, which ignores case, punctuation and articles. Of several
right texts the nearest counts. The bootstrap resamples examples. During training the model generates greedily, and the
loss is that of the first target. E examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import UsageError
from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.metrics.squad import question_scores
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.writing import TextToText, TextToTextConfig
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.evaluation.evaluation import (
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_classes, resampled_words
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_as, head_of, loss_of
from larvatus.tasks.validation import Calibration, Scores, check_metric
from larvatus.tasks.write.encode import EncodedPairs, encode_sources, write_texts
from larvatus.tasks.write.reader import WritingExample

OF_CLASSES = ("accuracy", "macro-f1")
OF_TEXTS = ("f1", "exact-match", "squad-exact")
Golds = Sequence[tuple[str, ...]]
"""The right texts of each example."""


def writing_metric(classes: Sequence[str], asked: str | None) -> str:
    """Metric that selects the best checkpoint."""
    known = OF_CLASSES if classes else OF_TEXTS
    return check_metric(asked, known)


def resampled_texts(golds: Golds, answers: Sequence[str], *, classes: Sequence[str]) -> dict[str, ResampledMetric]:
    """Metrics of the answers, example by example."""
    if classes:
        gold, given, count = as_numbers(golds, answers, classes)
        rows = resampled_classes(gold, given, kind="multi-class", classes=count)
        return {name: rows[name] for name in OF_CLASSES}
    pairs = list(zip(golds, answers, strict=True))
    squad = np.array([question_scores(right, answer) for right, answer in pairs], np.float64).reshape(-1, 2)
    same = np.array([is_right(right, answer) for right, answer in pairs], np.float64)
    return {"f1": _mean_of(squad[:, 1]), "exact-match": _mean_of(same), "squad-exact": _mean_of(squad[:, 0])}


def writing_scores(rows: dict[str, ResampledMetric]) -> dict[str, float]:
    """The scores of all examples."""
    return {name: float(metric.score(metric.rows.sum(0))) for name, metric in rows.items()}


def is_right(right: tuple[str, ...], answer: str) -> bool:
    """Whether a text is one of the right ones, but for spaces."""
    return _spaced(answer) in map(_spaced, right)


def as_numbers(golds: Golds, answers: Sequence[str], classes: Sequence[str]) -> tuple[Ints, Ints, int]:
    """Gold and given classes by number, and how many there are: those of the model, then those that it does not know.

    An answer that is no class has a number that no class has.
    """
    unknown = sorted({right[0] for right in golds} - set(classes))
    numbers = {name: number for number, name in enumerate([*classes, *unknown])}
    gold = np.array([numbers[right[0]] for right in golds], np.int64)
    given = np.array([numbers.get(answer, len(numbers)) for answer in answers], np.int64)
    return gold, given, len(numbers)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _mean_of(values_E: Doubles) -> ResampledMetric:
    return resampled_words(values_E, np.ones(len(values_E)))["accuracy"]


SHOWN = 5
"""Wrong answers that are shown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WritingEvaluation(Evaluation):
    """Evaluation of a model that generates text."""

    data: Dataset[WritingExample]
    classes: tuple[str, ...]
    """The texts to choose from, if targets are classes."""
    golds: tuple[tuple[str, ...], ...]
    """[E] the right texts."""
    answers: tuple[str, ...]
    """[E] what was written."""
    unfinished: int
    """Texts that were ended by the number of their tokens."""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """[E] whether each generated text is right, except for spaces."""
        return np.array([is_right(*row) for row in zip(self.golds, self.answers, strict=True)], np.bool_)

    @property
    def other(self) -> int:
        """Answers that are none of the classes."""
        return sum(answer not in self.classes for answer in self.answers) if self.classes else 0

    def details(self) -> dict[str, Any]:
        return {
            "metrics": plain_metrics(self.metrics),
            "classes": list(self.classes),
            "answers_of_no_class": self.other,
            "unfinished": self.unfinished,
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
    """Config of a model that was fine-tuned from text to text."""
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
        metrics=options.intervals(rows),
        reading=read_statistics(sequences),
        notes=(note,) if note else (),
        classes=config.classes,
        golds=golds,
        answers=answers,
        unfinished=sum(answer.ended == "length" for answer in written),
    )


NO_HEAD = "text to text has no separate head: the whole model generates; train all, or the last layers"


@dataclass(frozen=True, eq=False)
class WritingValidation:
    pairs: EncodedPairs
    golds: Golds
    tokenizer: Tokenizer
    config: TextToTextConfig
    metric: str

    def read_once(self, model: Network, scoring: ScoringOptions) -> WritingValidation:
        raise UsageError(NO_HEAD)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        answers = write_texts(model, self.tokenizer, self.pairs.sequences, most=self.config.most, scoring=scoring)
        rows = resampled_texts(self.golds, [answer.text for answer in answers], classes=self.config.classes)
        loss = written_loss(model, self.pairs, scoring)
        return Scores(metric=self.metric, values=writing_scores(rows), validation_loss=loss)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """None: generated text has no probability to calibrate."""
        return Calibration()


@torch.inference_mode()
def written_loss(model: Network, pairs: EncodedPairs, scoring: ScoringOptions) -> float:
    """The mean loss of a token that is to be written, as training counts it."""
    head = head_of(model)
    model.eval()
    total, count = 0.0, 0
    for chosen in batches_by_length(pairs.sequences, scoring.budget):
        batch = pairs.batch(chosen)
        with scoring.autocast():
            loss = loss_of(
                model, on_device(batch, scoring.device), head, limit=int(pairs.sequences.lengths[chosen[-1]])
            )
        total += float(loss.total)
        count += int(head.size(batch))
    return total / count if count else math.nan
