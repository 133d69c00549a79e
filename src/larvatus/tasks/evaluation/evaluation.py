"""What a fine-tuned model is worth on labelled examples: metrics with intervals, classes, confusions, calibration.

    found = evaluate_texts(bundle, read_texts("test.tsv"))
    found.metrics["accuracy"].value, found.metrics["accuracy"].low, found.by_class["yes"].f1
    found = evaluate_tags(bundle, read_tagged("test.conll"))
    found.metrics["entity-f1"].value, found.errors.boundary, found.confused[0]

Intervals are of 95%, by the bootstrap over examples. Long texts are windowed as in fine-tuning; where they are cut
instead, words that were not read count as wrong and their entities as missed. So do labels that the model does not know
(`tasks/read/unknown.py`). Calibration is that of the probabilities which `predict` gives, scores divided by the model's
temperature, over the examples whose label it knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.arrays import Floats, Ints
from larvatus.batch import edges
from larvatus.bundle.directory import Bundle
from larvatus.errors import DataError, UsageError
from larvatus.heads import Classification, ClassificationConfig, Tagging, TaggingConfig
from larvatus.labelled.records import Dataset, TaggedExample, TextExample
from larvatus.metrics.calibration import brier, negative_log_likelihood, reliability, reliability_of
from larvatus.metrics.classification import ClassCounts, confusion, f1_by_class, multi_label
from larvatus.metrics.entities import entity_f1
from larvatus.nn.buckets import IGNORE
from larvatus.tasks.classify.classify import Merge, class_scores, probabilities
from larvatus.tasks.evaluation.evaluated import Calibration, Confused, Reading, TagEvaluation, TextEvaluation
from larvatus.tasks.evaluation.resampled import resampled_classes, resampled_tags, resampled_words
from larvatus.tasks.fit.finetune import encode_tags, encode_texts
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.tasks.read.sequences import Sequences
from larvatus.tasks.scoring import Scoring, head_of, score_sequences
from larvatus.tasks.tag.schemes import in_scheme, scheme_of
from larvatus.tasks.tag.tag import decode, tag_probabilities, words_read
from larvatus.text.tag_schemes import Scheme, detect_scheme, find_illegal, read_entities, read_leniently


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    scoring: Scoring = field(default_factory=Scoring)
    merge: Merge = "mean"
    """How the windows of a long text answer together."""
    length: int | None = None
    """Tokens of a window; None: as many as the model has positions."""
    truncate: bool = False
    """Read the first window of a long text alone."""
    repair: bool = False
    """Illegal sequences of gold tags are read as conlleval does, not refused."""
    strict: bool = False
    """Labels that the model does not know are refused, not counted as wrong."""
    samples: int = 1000
    """Of the bootstrap."""
    seed: int = 0

    @property
    def settings(self) -> FineTuneConfig:
        return FineTuneConfig(length=self.length, truncate=self.truncate)


def evaluate_texts(
    bundle: Bundle, data: Dataset[TextExample], options: EvaluationOptions = EvaluationOptions()
) -> TextEvaluation:
    """A model that classifies texts or pairs, or gives them a number."""
    head = head_of(bundle.network, str(bundle.path))
    if not isinstance(head, Classification):
        what = "tags words; give it words with tags" if isinstance(head, Tagging) else "does not classify texts"
        raise UsageError(f"{bundle.path} {what}, not texts with labels")
    config = head.config
    encoded = encode_texts(bundle, data, config, options.settings)
    unknown = encoded.unknown
    unknown.check(strict=options.strict)
    names = (*config.labels, *unknown.names)
    bundle.network.to(options.scoring.device)
    scores = class_scores(bundle.network, encoded.sequences, options.scoring, options.merge)
    gold, found = unknown.added_to(encoded.labels, known=len(config.labels)), answers_of(scores, config)
    if found.ndim == 2:
        found = np.pad(found, ((0, 0), (0, len(unknown.names))))
    rows = resampled_classes(gold, found, kind=config.kind, classes=len(names), binary=len(config.labels) == 2)
    counts, table = _counts(gold, found, config, len(names))
    known = encoded.labels != IGNORE if config.kind == "multi-class" else np.ones(len(gold), np.bool_)
    return TextEvaluation(
        model=str(bundle.path),
        data=data,
        kind=config.kind,
        labels=names,
        unknown=unknown.names,
        notes=tuple(line for line in [unknown.note("texts", "labelled with classes")] if line),
        metrics={name: one.interval(samples=options.samples, seed=options.seed) for name, one in rows.items()},
        by_class={label: counts.of(number) for number, label in enumerate(names)} if counts else {},
        confusion=table,
        calibration=_calibration_of_texts(head, encoded.labels[known], scores[known]),
        reading=reading_of(encoded.sequences),
        gold=gold,
        found=found,
        probabilities=probabilities(head, scores),
    )


def answers_of(scores_EK: Floats, config: ClassificationConfig) -> npt.NDArray[np.generic]:
    """Classes [E], truths [E, K] or numbers [E], as `predict` gives them."""
    if config.kind == "regression":
        return scores_EK[:, 0]
    return np.asarray(scores_EK.argmax(-1) if config.kind == "multi-class" else scores_EK >= 0)


def _counts(
    gold: npt.NDArray[np.generic], found: npt.NDArray[np.generic], config: ClassificationConfig, classes: int
) -> tuple[ClassCounts | None, Ints | None]:
    if config.kind == "regression":
        return None, None
    if config.kind == "multi-label":
        return multi_label(gold, found).counts, None
    table = confusion(gold, found, classes=classes)
    return f1_by_class(table), table


def _calibration_of_texts(head: Classification, gold: npt.NDArray[np.generic], scores_EK: Floats) -> Calibration | None:
    config = head.config
    if config.kind == "regression" or not len(gold):
        return None
    kind: Literal["softmax", "sigmoid"] = "softmax" if config.kind == "multi-class" else "sigmoid"
    p_EK = probabilities(head, scores_EK)
    return Calibration(
        temperature=config.temperature,
        nll=negative_log_likelihood(scores_EK / config.temperature, gold, kind=kind),
        brier=brier(p_EK, gold, kind=kind),
        reliability=reliability_of(p_EK, gold, kind=kind),
    )


def evaluate_tags(
    bundle: Bundle, data: Dataset[TaggedExample], options: EvaluationOptions = EvaluationOptions()
) -> TagEvaluation:
    """A model that tags words."""
    head = head_of(bundle.network, str(bundle.path))
    if not isinstance(head, Tagging):
        classifies = isinstance(head, Classification)
        what = "classifies texts; give it texts with labels" if classifies else "does not tag words"
        raise UsageError(f"{bundle.path} {what}, not words with tags")
    config = head.config
    scheme = spelling_of(config, data)
    spelt = as_spelt(data, scheme, repair=options.repair)
    encoded = encode_tags(bundle, spelt, config, options.settings)
    unknown = encoded.unknown
    unknown.check(strict=options.strict)
    names = (*config.labels, *unknown.names)
    gold = np.asarray(unknown.added_to(encoded.tags, known=len(config.labels)), np.int64)
    bundle.network.to(options.scoring.device)
    scores = score_sequences(bundle.network, encoded.sequences, options.scoring)
    counts = words_read(encoded.sequences)
    found = decode(head, scores, counts)
    table = confusion(gold, found, classes=len(names))
    answered, words_E = cut_up(found, counts, config), [len(example.words) for example in spelt]
    written = [example.tags or () for example in spelt]
    gold_entities, found_entities = ([read_leniently(tags, scheme) for tags in both] for both in (written, answered))
    gold_strict, found_strict = ([read_entities(tags, scheme) for tags in both] for both in (written, answered))
    right = np.add.reduceat(np.append(found == gold, False).astype(np.int64), edges(counts)[:-1])
    right[counts == 0] = 0  # of an empty stretch reduceat gives its first element
    rows = resampled_words(right, words_E)
    if scheme != "none":
        rows |= resampled_tags((gold_entities, found_entities), (gold_strict, found_strict))
    entities = entity_f1(gold_entities, found_entities) if scheme != "none" else None
    by_tag, known = f1_by_class(table), gold < len(config.labels)
    return TagEvaluation(
        model=str(bundle.path),
        data=data,
        scheme=scheme,
        labels=names,
        unknown=unknown.names,
        notes=tuple(line for line in [unknown.note("words", "tagged with tags")] if line),
        metrics={name: one.interval(samples=options.samples, seed=options.seed) for name, one in rows.items()},
        by_type=entities.by_type if entities else {},
        errors=entities.errors if entities else None,
        by_tag={label: by_tag.of(number) for number, label in enumerate(names)},
        confusion=table,
        confused=most_confused(table, names),
        calibration=_calibration_of_tags(
            head, gold[known], found[known], tag_probabilities(head, scores, counts)[known]
        ),
        reading=reading_of(encoded.sequences, words=sum(words_E), words_read=int(counts.sum())),
        right=right,
        words=np.asarray(words_E, np.int64),
        gold_entities=gold_entities,
        found_entities=found_entities,
        gold_strict=gold_strict,
        found_strict=found_strict,
        tags=answered,
    )


def spelling_of(config: TaggingConfig, data: Dataset[TaggedExample]) -> Scheme:
    """How the model's tags spell entities. Models of others do not say: by the letters of their tags, and where those
    are of BIO and IOB1 alike, as the file has it."""
    if config.scheme != "none":
        return config.scheme
    named, alike = detect_scheme([config.labels]), ("BIO", "IOB1")
    if named not in alike:
        return named
    written = scheme_of(data)
    return written if written in alike else "BIO"


def as_spelt(data: Dataset[TaggedExample], scheme: Scheme, *, repair: bool) -> Dataset[TaggedExample]:
    """Gold tags in the scheme that the model has; a file that is legal in it is not taken for another."""
    bare = next((example for example in data if example.tags is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its words have no tags to hold the model's against")
    written = scheme_of(data)
    if "none" in (scheme, written):
        return data  # tags that the model does not know are named when they are numbered
    if written != scheme and not _has_illegal(data, scheme):
        written = scheme
    return in_scheme(data, scheme, source=written, repair=repair)


def _has_illegal(data: Dataset[TaggedExample], scheme: Scheme) -> bool:
    try:
        return any(find_illegal(example.tags or (), scheme) for example in data)
    except DataError:  # letters of another scheme
        return True


def cut_up(tags_W: Ints, counts_E: Ints, config: TaggingConfig) -> list[list[str]]:
    """The tags of each sentence by name."""
    names = np.array(config.labels)[tags_W].tolist()
    return [names[first:last] for first, last in pairwise(edges(counts_E).tolist())]


def most_confused(table: Ints, labels: tuple[str, ...]) -> tuple[Confused, ...]:
    """Pairs of gold and answer that differ, the most frequent first."""
    wrong = table - np.diag(np.diagonal(table))
    rows, columns = np.nonzero(wrong)
    order = np.argsort(-wrong[rows, columns], kind="stable")
    return tuple(
        Confused(
            gold=labels[rows[at]],
            found=labels[columns[at]],
            count=int(wrong[rows[at], columns[at]]),
            share=float(wrong[rows[at], columns[at]] / table[rows[at]].sum()),
        )
        for at in order.tolist()
    )


def _calibration_of_tags(head: Tagging, gold_W: Ints, found_W: Ints, p_WK: Floats) -> Calibration | None:
    if not len(gold_W):
        return None
    sure = np.minimum(p_WK[np.arange(len(found_W)), found_W], 1.0)
    return Calibration(
        temperature=head.config.temperature,
        nll=negative_log_likelihood(np.log(np.maximum(p_WK, np.finfo(np.float32).tiny)), gold_W),
        brier=brier(p_WK, gold_W),
        reliability=reliability(sure, found_W == gold_W),
    )


def reading_of(sequences: Sequences, *, words: int | None = None, words_read: int | None = None) -> Reading:
    return Reading(
        examples=len(sequences),
        long=int(((sequences.parts > 1) | (sequences.read < sequences.tokens)).sum()),
        windows=int(sequences.parts.sum()),
        tokens=int(sequences.tokens.sum()),
        read=int(sequences.read.sum()),
        words=words,
        words_read=words_read,
    )
