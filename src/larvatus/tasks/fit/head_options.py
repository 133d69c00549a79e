"""The head that a data set asks for: its classes or tags, and the choices that a user makes beside them.

config = classification_head(train, HeadOptions(pool="mean"), natural={})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from larvatus.errors import DataError, UsageError
from larvatus.heads import ClassificationConfig, TaggingConfig
from larvatus.heads.trunk import Dense
from larvatus.labelled.records import Dataset, TaggedExample, TextExample
from larvatus.ranges import DropoutRate, Focal, SizeOrNone, Weight, check_ranges
from larvatus.tasks.read.words import spacing_of
from larvatus.tasks.tag.schemes import all_tags
from larvatus.text.tag_schemes import Scheme


class HeadOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be chosen of a head; None is what suits the model or the task."""

    pool: Literal["cls", "first", "mean", "max"] | None = None
    """cls, mean or max of a text; first, mean or max of a word's subwords."""
    dense: Dense | None = None
    """The layer before the classes; None: as the model's family has it."""
    dropout: DropoutRate | None = None
    mix: bool = False
    """A learned mix of all layers."""
    balanced: bool = False
    """Classes count the more the rarer they are."""
    class_weights: Mapping[str, Weight] = {}
    """Or as much as is said here; those not named count 1."""
    focal: Focal = 0.0
    smoothing: DropoutRate = 0.0
    crf: bool = False
    lstm: SizeOrNone = 0
    learn: Literal["subwords", "words"] = "subwords"
    scheme: Scheme | None = None
    """How tags are to spell entities; None: as the training set does, but BIO for IOB1."""

    def __post_init__(self) -> None:
        check_ranges(self, "")


def classification_head(
    train: Dataset[TextExample], options: HeadOptions, *, natural: Mapping[str, Any]
) -> ClassificationConfig:
    """`natural` is what the model's family has: its layer before the classes and its way of pooling."""
    if options.crf or options.lstm or options.learn != "subwords" or options.scheme:
        raise UsageError("a CRF, an LSTM and schemes of tags belong to finetune tag, not classify")
    kind = train.kind or "multi-class"
    counts = train.labels()
    labels = ("value",) if kind == "regression" else train.label_names()
    if kind == "multi-class" and len(labels) < 2:
        raise DataError(f"{train.source}: all examples are labelled {labels[0]!r}; classification wants two classes")
    chosen = {"pool": options.pool, "dense": options.dense, "dropout": options.dropout}
    settings: dict[str, Any] = {**natural, **{name: value for name, value in chosen.items() if value is not None}}
    if settings.get("dense") == "none":
        settings["dense_norm"] = False
    if settings.get("pool") == "first":
        raise UsageError("a text is pooled by cls, mean or max; first is for the subwords of a word")
    return ClassificationConfig(
        labels=labels,
        kind=kind,
        mix=options.mix,
        class_weights=_weights(labels, counts, options, train) if kind != "regression" else (),
        focal=options.focal,
        smoothing=options.smoothing,
        **settings,
    )


def _weights(
    labels: tuple[str, ...], counts: Counter[str], options: HeadOptions, train: Dataset[TextExample]
) -> tuple[float, ...]:
    """Of each class: n / (K n_k) where balanced (as scikit-learn has it), of several labels no / yes; or as given."""
    for name in options.class_weights:
        if name not in labels:
            raise UsageError(f"there is no class {name!r} to give a weight; there are {', '.join(labels)}")
    if options.balanced and train.kind == "multi-label":
        return tuple(max(1, len(train) - counts[label]) / counts[label] for label in labels)
    if options.balanced:
        return tuple(len(train) / (len(labels) * counts[label]) for label in labels)
    if options.class_weights:
        return tuple(float(options.class_weights.get(label, 1.0)) for label in labels)
    return ()


def tagging_head(
    train: Dataset[TaggedExample], options: HeadOptions, *, scheme: Scheme, natural: Mapping[str, Any]
) -> TaggingConfig:
    """The tags of the training set; a scheme is complete, so that decoding can spell every entity it has seen."""
    if options.balanced or options.class_weights or options.focal or options.smoothing or options.dense:
        raise UsageError("class weights, focal loss, smoothing and dense belong to finetune classify, not tag")
    if options.pool == "cls":
        raise UsageError("a word is pooled by first, mean or max of its subwords, not cls")
    labels = all_tags(train.labels(), scheme)
    if len(train.labels()) < 2:
        raise DataError(
            f"{train.source}: all words are tagged {', '.join(train.labels())}; tagging wants two tags or more"
        )
    settings: dict[str, Any] = dict(natural)
    if options.dropout is not None:
        settings["dropout"] = options.dropout
    return TaggingConfig(
        labels=labels,
        scheme=scheme,
        pool=options.pool or "first",
        learn=options.learn,
        crf=options.crf,
        lstm=options.lstm,
        mix=options.mix,
        spacing=spacing_of(train.examples),
        **settings,
    )
