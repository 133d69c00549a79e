"""What may be chosen where texts are classified, and the head that the training texts then ask for.

config = classification_head(train, ClassifyOptions(pool="mean"), natural={})
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET

from larvatus.core.errors import DataError, UsageError
from larvatus.core.flags import Flag
from larvatus.core.ranges import DropoutRate, Focal, SizeOrNone, Weight
from larvatus.core.settings import Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.heads import ClassificationConfig
from larvatus.models.heads.head import Dense
from larvatus.models.heads.pooling import SUMMARIES
from larvatus.tasks.classify.classify import Merge


def _weights_given(words: Sequence[str]) -> dict[str, Any]:
    """Of the command line: ``yes=2``, several times, or ``balanced``."""
    if "balanced" in words:
        if len(words) > 1:
            raise UsageError("--class-weight balanced gives every class its weight; leave the others out")
        return {"balanced": True}
    weights = {}
    for word in words:
        refuse_surrogates(word, "--class-weight")
        name, _, weight = word.rpartition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            name = ""
        if not name or not 0 <= weights[name] < math.inf:
            raise UsageError(f"--class-weight {word} is neither NAME=NUMBER, at least 0, nor balanced")
    return {"class_weights": weights}


class ClassifyOptions(Settings):
    """Of a head that classifies; None is what suits the model."""

    pool: Literal["cls", "mean", "max"] | None = None
    """What stands for a text: cls, or mean or max of its tokens; default: as the model's family has it."""
    dense: Dense | None = None
    """Layer before the classes; none: W_C alone; default: as the model's family has it."""
    dropout: DropoutRate | None = None
    """Dropout before the classes; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""
    layers: str | None = None
    """Which layers are read: all, last4 or concat4, or one by number (0: embeddings); default: the last."""
    lstm: SizeOrNone = 0
    """Size of a BiLSTM over the tokens; 0: none."""
    both_orders: bool | None = None
    """Read a pair in both orders and add their vectors; default: similarity with a left-to-right model (GPT)."""
    balanced: Annotated[bool, Flag(offered=False)] = False
    """Classes count the more the rarer they are."""
    class_weights: Annotated[Mapping[str, Weight], Flag("--class-weight", metavar="NAME=W", words=_weights_given)] = {}
    """How much a class counts (others count 1), or balanced: the more the rarer it is; repeatable."""
    focal: Focal = 0.0
    """γ of the focal loss; 0: cross-entropy."""
    smoothing: DropoutRate = 0.0
    """Share of a target that is spread over all classes."""
    merge: Merge = "mean"
    """How the windows of a long text answer together: by the mean of their scores, or by the highest."""


def classification_head(
    train: Dataset[TextExample], options: ClassifyOptions, *, natural: Mapping[str, Any]
) -> ClassificationConfig:
    """`natural` is what the model's family has: its layer before the classes and its way of pooling."""
    kind = train.kind or "multi-class"
    counts = train.labels()
    labels = ("value",) if kind == "regression" else train.label_names()
    if kind == "multi-class" and len(labels) < 2:
        raise DataError(f"{train.source}: all examples are labelled {labels[0]!r}; classification wants two classes")
    chosen = {"pool": options.pool, "dense": options.dense, "dropout": options.dropout}
    settings: dict[str, Any] = {**natural, **{name: value for name, value in chosen.items() if value is not None}}
    if settings.get("dense") == "none":
        settings["dense_norm"] = False
    if settings.get("pool", "cls") not in (*SUMMARIES, "mean", "max"):
        raise UsageError(f"a text is pooled by cls, mean or max, not {settings['pool']}")
    return ClassificationConfig(
        labels=labels,
        kind=kind,
        mix=options.layers or bool(options.mix),
        lstm=options.lstm or UNSET,
        class_weights=_weights(labels, counts, options, train) if kind != "regression" else (),
        focal=options.focal,
        smoothing=options.smoothing,
        **settings,
    )


def _weights(
    labels: tuple[str, ...], counts: Counter[str], options: ClassifyOptions, train: Dataset[TextExample]
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
