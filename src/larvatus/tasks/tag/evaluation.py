"""Evaluation of a tagger on tagged sentences: accuracy, entities by type, confusions, calibration, with intervals.

    found = evaluate_tags(bundle, read_tagged("test.conll"))
    found.metrics["entity-f1"].value, found.errors.boundary, found.confused[0]

Where long texts are cut, words that were not read count as wrong and their entities as missed. So do tags that the
model does not know (`tasks/arguments.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges
from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.text.tag_schemes import (
    EntitySpan,
    Scheme,
    detect_scheme,
    find_illegal,
    read_entities,
    read_leniently,
)
from larvatus.metrics.calibration import brier, negative_log_likelihood, reliability
from larvatus.metrics.classification import F1, confusion, f1_by_class
from larvatus.metrics.entities import EntityErrors, entity_f1
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Tagging, TaggingConfig
from larvatus.tasks.evaluation.evaluation import (
    CalibrationReport,
    EvaluationOptions,
    LabelEvaluation,
    PairedMetrics,
    class_rows,
    most_confused,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_tags, resampled_words
from larvatus.tasks.evaluation.tables import ConfusedPair, class_table, confusion_table, entity_error_line
from larvatus.tasks.scoring import score_sequences
from larvatus.tasks.tag.tag import (
    convert_scheme,
    decode,
    scheme_of,
    tag_probabilities,
    tagged_words,
    tagger_of,
    words_read,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class TagEvaluation(LabelEvaluation):
    """Evaluation of a model that tags words."""

    data: Dataset[TaggedExample]
    scheme: Scheme
    by_type: dict[str, F1]
    """Scores by type of entity, read leniently; empty where tags hold no entities."""
    errors: EntityErrors | None
    """Errors in entities."""
    by_tag: dict[str, F1]
    """Scores by tag, of the words that were read."""
    confusion: Ints
    """[K, K] words read: gold tag by answer."""
    confused: tuple[ConfusedPair, ...]
    """The most frequent first."""
    right: Ints
    """[E] words of each sentence that are tagged rightly, of `words` [E]."""
    words: Ints
    gold_entities: list[list[EntitySpan]]
    found_entities: list[list[EntitySpan]]
    """Entities of each sentence, read leniently, as `predict` gives them."""
    gold_strict: list[list[EntitySpan]]
    found_strict: list[list[EntitySpan]]
    """Entities of each sentence that the scheme allows."""
    tags: list[list[str]]
    """Predicted tags of the words of each sentence that were read."""

    def details(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "metrics": plain_metrics(self.metrics),
            "types": class_rows(self.by_type),
            "errors": None if self.errors is None else dataclasses.asdict(self.errors),
            "tags": class_rows(self.by_tag),
            **self.label_dict(),
            "confused": [dataclasses.asdict(pair) for pair in self.confused],
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        if self.errors is not None:
            yield from class_table("type", self.by_type)
            yield from entity_error_line("entities", self.errors)
            yield (
                "entities are read leniently, as by conlleval and predict; entity-f1-strict counts none that "
                f"{self.scheme} forbids"
            )
        else:
            yield from class_table("tag", self.by_tag)
        yield from confusion_table(self.confusion, self.labels, self.confused, pairs=True)
        yield from self.calibration_and_notes()

    @property
    def headline(self) -> str:
        return "accuracy" if self.errors is None else "entity-f1"

    def paired(self, other: TagEvaluation) -> PairedMetrics:
        """Words are no independent examples, so that none is right or wrong by itself."""
        return _paired_tags(self, other)


def evaluate_tags(
    bundle: Bundle, data: Dataset[TaggedExample], options: EvaluationOptions = EvaluationOptions()
) -> TagEvaluation:
    """A model that tags words."""
    head = tagger_of(bundle.network, str(bundle.path))
    config = head.config
    scheme = model_scheme(config, data)
    converted = gold_in_scheme(data, scheme, repair=options.repair)
    encoded = tagged_words(bundle, converted.examples, config, options.windows(bundle))
    unknown = encoded.unknown
    unknown.check(strict=options.strict)
    names = (*config.labels, *unknown.names)
    gold = np.asarray(unknown.added_to(encoded.tags, known=len(config.labels)), np.int64)
    bundle.network.to(options.scoring.device)
    scores = score_sequences(bundle.network, encoded.sequences, options.scoring)
    counts = words_read(encoded.sequences)
    answers = decode(head, scores, counts)
    table = confusion(gold, answers, classes=len(names))
    answered, words_E = tags_by_sentence(answers, counts, config), [len(example.words) for example in converted]
    written = [example.tags or () for example in converted]
    gold_entities, found_entities = ([read_leniently(tags, scheme) for tags in both] for both in (written, answered))
    gold_strict, found_strict = ([read_entities(tags, scheme) for tags in both] for both in (written, answered))
    right = np.add.reduceat(np.append(answers == gold, False).astype(np.int64), edges(counts)[:-1])
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
        metrics=options.intervals(rows),
        by_type=entities.by_type if entities else {},
        errors=entities.errors if entities else None,
        by_tag={label: by_tag.of(number) for number, label in enumerate(names)},
        confusion=table,
        confused=most_confused(table, names),
        calibration=_calibration_of_tags(
            head, gold[known], answers[known], tag_probabilities(head, scores, counts)[known]
        ),
        reading=read_statistics(encoded.sequences, words=sum(words_E), words_read=int(counts.sum())),
        right=right,
        words=np.asarray(words_E, np.int64),
        gold_entities=gold_entities,
        found_entities=found_entities,
        gold_strict=gold_strict,
        found_strict=found_strict,
        tags=answered,
    )


def model_scheme(config: TaggingConfig, data: Dataset[TaggedExample]) -> Scheme:
    """The scheme of the model's tags. If the model does not state it, the letters of its tags decide, and between BIO
    and IOB1 the file."""
    if config.scheme != "none":
        return config.scheme
    named, alike = detect_scheme([config.labels]), ("BIO", "IOB1")
    if named not in alike:
        return named
    written = scheme_of(data)
    return written if written in alike else "BIO"


def gold_in_scheme(data: Dataset[TaggedExample], scheme: Scheme, *, repair: bool) -> Dataset[TaggedExample]:
    """Gold tags in the scheme that the model has; a file that is legal in it is not taken for another."""
    bare = next((example for example in data if example.tags is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its words have no tags to hold the model's against")
    written = scheme_of(data)
    if "none" in (scheme, written):
        return data  # tags that the model does not know are named when they are numbered
    if written != scheme and not _has_illegal(data, scheme):
        written = scheme
    return convert_scheme(data, scheme, source=written, repair=repair)


def _has_illegal(data: Dataset[TaggedExample], scheme: Scheme) -> bool:
    try:
        return any(find_illegal(example.tags or (), scheme) for example in data)
    except DataError:  # letters of another scheme
        return True


def tags_by_sentence(tags_W: Ints, counts_E: Ints, config: TaggingConfig) -> list[list[str]]:
    """The tags of each sentence by name."""
    names = np.array(config.labels)[tags_W].tolist()
    return [names[first:last] for first, last in pairwise(edges(counts_E).tolist())]


def _calibration_of_tags(head: Tagging, gold_W: Ints, found_W: Ints, p_WK: Floats) -> CalibrationReport | None:
    if not len(gold_W):
        return None
    sure = np.minimum(p_WK[np.arange(len(found_W)), found_W], 1.0)
    return CalibrationReport(
        temperature=head.config.temperature,
        nll=negative_log_likelihood(np.log(np.maximum(p_WK, np.finfo(np.float32).tiny)), gold_W),
        brier=brier(p_WK, gold_W),
        reliability=reliability(sure, found_W == gold_W),
    )


def _paired_tags(first: TagEvaluation, second: TagEvaluation) -> PairedMetrics:
    """Accuracy where both write tags alike, entities where both spell any."""
    of_first: dict[str, ResampledMetric] = {}
    of_second: dict[str, ResampledMetric] = {}
    if first.scheme == second.scheme:
        of_first, of_second = resampled_words(first.right, first.words), resampled_words(second.right, second.words)
    if "none" not in (first.scheme, second.scheme):  # counted in one go, so that both have the same types
        count = len(first.words)
        entities = resampled_tags(
            ([*first.gold_entities, *second.gold_entities], [*first.found_entities, *second.found_entities]),
            ([*first.gold_strict, *second.gold_strict], [*first.found_strict, *second.found_strict]),
        )
        of_first |= {name: dataclasses.replace(all_of, rows=all_of.rows[:count]) for name, all_of in entities.items()}
        of_second |= {name: dataclasses.replace(all_of, rows=all_of.rows[count:]) for name, all_of in entities.items()}
    if not of_first:
        raise UsageError(f"{first.model} and {second.model} write tags otherwise and have no metric in common")
    return PairedMetrics(of_first, of_second)
