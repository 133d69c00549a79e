"""Classifying texts and pairs (chapter §11.4.1 and 11.4.2): labelled examples as training batches, scores as answers.

Learning, every window of a long text carries the text's label and counts 1 / windows. Answering, the scores of its
windows are merged: their mean, or for each class the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, did_you_mean
from larvatus.core.ranges import Range, short_repr
from larvatus.core.targets import ClassTargets
from larvatus.data.labelled.records import TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Classification, ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import Sequences, TextOrPair, WindowOptions, text_sequences
from larvatus.tasks.results import Classified, Coverage, coverages
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences

VALUES = Range(-1e15, 1e15)
"""Range of a regression's labels: their squares must be finite too."""


Merge = Literal["mean", "max"]
YES = 0.5
"""A label holds from this probability on."""


@dataclass(frozen=True, eq=False)
class LabelledTexts:
    """Training examples of classification."""

    sequences: Sequences
    labels: npt.NDArray[np.generic]  # [E] classes or numbers, [E, K] yes and no; IGNORE of a class that is unknown
    unknown: UnknownLabels = field(default_factory=UnknownLabels)

    def __len__(self) -> int:
        return len(self.sequences)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        sequences = self.sequences.of(examples)
        return TrainingBatch(tokens=self.sequences.batch(sequences), targets={ClassTargets: self.targets(examples)})

    def targets(self, examples: Ints) -> ClassTargets[Any]:
        """The labels of some examples' sequences, each with its share: one order of a pair counts for both."""
        orders = self.sequences.orders
        parts, labels = self.sequences.parts[examples], self.labels[examples]
        shares = (1.0 / np.maximum(parts, 1)).astype(np.float32)
        if len(self.unknown) and labels.ndim == 1:  # no loss is defined of them
            shares, labels = np.where(labels == IGNORE, np.float32(0), shares), np.where(labels == IGNORE, 0, labels)
        weights = np.repeat(shares, parts * orders)
        if orders > 1:
            weights[1::2] = 0
        return ClassTargets(labels=np.repeat(labels, parts * orders, axis=0), weights=weights)


def label_array(examples: Sequence[TextExample], config: ClassificationConfig) -> npt.NDArray[np.generic]:
    """Gold labels of the examples as numbers: [E], or [E, K] for several labels.

    A class that the model does not know is IGNORE, a label that it does not know is left out; see `unknown_texts`.
    """
    ids = {label: number for number, label in enumerate(config.labels)}
    if config.kind == "regression":
        return np.array([_number(example) for example in examples], dtype=np.float32)
    if config.kind == "multi-class":
        return np.array([ids.get(_label(example, example.label), IGNORE) for example in examples], dtype=np.int64)
    rows = np.zeros((len(examples), len(ids)), dtype=np.float32)
    for row, example in zip(rows, examples, strict=True):
        for label in _labels(example):
            if label in ids:
                row[ids[label]] = 1.0
    return rows


def unknown_texts(examples: Sequence[TextExample], config: ClassificationConfig) -> UnknownLabels:
    """The labels of the examples that are none of the model's."""
    if config.kind == "regression":
        return UnknownLabels()
    ids = set(config.labels)
    unknown = [
        (number, label) for number, example in enumerate(examples) for label in _labels(example) if label not in ids
    ]
    first = ""
    if unknown:
        number, label = unknown[0]
        first = f"{examples[number].place} is labelled {label!r}, which the model does not know"
        first += did_you_mean(label, ids)
    total = len(examples) if config.kind == "multi-class" else sum(len(_labels(example)) for example in examples)
    return UnknownLabels.of(unknown, total=total, first=first)


def _labels(example: TextExample) -> tuple[str, ...]:
    """The class or the labels of an example."""
    if isinstance(example.label, tuple):
        return example.label
    return () if example.label is None else (_label(example, example.label),)


def _number(example: TextExample) -> float:
    try:
        value = float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as fault:
        label = short_repr(example.label)
        raise DataError(f"{example.place}: the label {label} is not a number, which regression needs") from fault
    VALUES.check(value, f"{example.place}: the label", DataError)
    return value


def _label(example: TextExample, label: object) -> str:
    if label is None:
        raise DataError(f"{example.place} has no label; give it one, or leave the example out")
    if not isinstance(label, str):
        raise DataError(f"{example.place} is labelled {label!r}, which is no class; give its name")
    return label


def classifier_of(model: Network, name: str = "the model") -> Classification:
    """The head of a model that classifies texts."""
    return head_as(model, Classification, "classify texts", name)


def texts_of(examples: Sequence[TextExample]) -> list[TextOrPair]:
    """Texts and pairs as the model reads them."""
    return [example.text if example.pair is None else (example.text, example.pair) for example in examples]


def encode_texts(
    bundle: Bundle, examples: Sequence[TextExample], config: ClassificationConfig, windows: WindowOptions
) -> Sequences:
    """Texts and pairs as a model with this head reads them, labelled or not."""
    return text_sequences(
        bundle.tokenizer,
        texts_of(examples),
        limit=windows.limit,
        truncate=windows.truncate,
        overlap=windows.overlap,
        both_orders=bool(config.both_orders),
    )


def labelled_texts(
    bundle: Bundle, examples: Sequence[TextExample], config: ClassificationConfig, windows: WindowOptions
) -> LabelledTexts:
    """Encoded texts and pairs with their gold labels."""
    labels = label_array(examples, config)
    return LabelledTexts(encode_texts(bundle, examples, config, windows), labels, unknown_texts(examples, config))


def merge_windows(scores_SK: Floats, parts: Ints, merge: Merge = "mean") -> Floats:
    """Scores of examples from those of their windows: [S, K] → [E, K]."""
    starts = edges(parts)[:-1]
    if merge == "max":
        return np.maximum.reduceat(scores_SK, starts, axis=0) if len(parts) else scores_SK
    sums = np.add.reduceat(scores_SK, starts, axis=0) if len(parts) else scores_SK
    return np.asarray(sums / parts[:, None], dtype=np.float32)


def class_scores(model: Network, sequences: Sequences, scoring: ScoringOptions, merge: Merge = "mean") -> Floats:
    """Scores of every class for every example: [E, K]."""
    return merge_windows(score_sequences(model, sequences, scoring), sequences.parts, merge)


def probabilities(head: Classification, scores_EK: Floats) -> Floats:
    """Calibrated probabilities; the number itself for a regression."""
    rows: Floats = head.probabilities(torch.from_numpy(scores_EK)).numpy()
    return rows


def classify(
    model: Network,
    texts: Sequence[TextOrPair],
    sequences: Sequences,
    *,
    scoring: ScoringOptions,
    merge: Merge = "mean",
) -> list[Classified]:
    """The answers of a model for texts that are encoded already."""
    head = classifier_of(model)
    rows = probabilities(head, class_scores(model, sequences, scoring, merge))
    return predictions(head.config, texts, sequences, rows)


def predictions(
    config: ClassificationConfig, texts: Sequence[TextOrPair], sequences: Sequences, rows: Floats
) -> list[Classified]:
    """The answers that probabilities [E, K] come to."""
    examples = zip(texts, rows.tolist(), coverages(sequences), strict=True)
    return [_answer(text, row, coverage, config) for text, row, coverage in examples]


def _answer(text: TextOrPair, row: list[float], coverage: Coverage, config: ClassificationConfig) -> Classified:
    first, second = (text, None) if isinstance(text, str) else text
    if config.kind == "regression":
        return Classified(text=first, pair=second, value=row[0], probabilities={}, coverage=coverage)
    named = dict(zip(config.labels, row, strict=True))
    if config.kind == "multi-class":
        best = max(named, key=named.__getitem__)
        return Classified(text=first, pair=second, label=best, probabilities=named, coverage=coverage)
    holds = tuple(label for label, share in named.items() if share >= YES)
    return Classified(text=first, pair=second, labels=holds, probabilities=named, coverage=coverage)
