"""Options of classification, and the head that the training texts need: classes, pooling, orders of a pair.

    config = classification_head(train, ClassifyOptions(pool="mean"), natural={})
    pooling_of(bundle, labels=("bad", "good"), trained="head", family="cls").pool      # "mean"

**Pooling**, where none is given. If the whole encoder is trained, the default of its family is used ([CLS] of a BERT):
fine-tuning teaches [CLS] what to hold, and `transformers` has a class for the result. A frozen encoder is used as it
is: a sentence encoder with the pooling of its training (`1_Pooling/config.json`), any other with the mean of its
tokens, since [CLS] of a masked language model was trained for nothing, or for next sentences (Reimers & Gurevych 2019,
§4).

**Orders** of a pair (Radford et al. 2018, §3.3: similarity). Both are read, and their vectors added:

    _start_ A _delimiter_ B _classify_   →  h₁
    _start_ B _delimiter_ A _classify_   →  h₂        y = W (h₁ + h₂)

A left-to-right model reads the second text knowing the first, but not the reverse, so it would depend on an order that
means nothing. By default it reads both orders of pairs that are symmetric: similarity (a number for a pair), and data
sets known to be symmetric (MRPC, QQP). All other pairs, and pairs of bidirectional encoders, are read as given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import DropoutRate, Focal, Range, SizeOrNone, Weight
from larvatus.core.settings import Flag, Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.data.text.special_tokens import has_delimiters
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import ClassificationConfig
from larvatus.models.heads.head import Dense
from larvatus.models.heads.pooling import SUMMARIES
from larvatus.tasks.arguments import Trainable, head_settings
from larvatus.tasks.classify.classify import Merge

MINUTES = Range(0, 10_000, above=True)
"""Time budget of a search among candidates."""


def _weights_given(words: Sequence[str]) -> dict[str, Any]:
    """Class weights from the command line: ``yes=2``, several times, or ``balanced``."""
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
    """Options of a classification head; None uses the model's default."""

    pool: Literal["cls", "mean", "max"] | None = None
    """Vector of a text: cls, or mean or max of its tokens; default: as the model's family has it."""
    dense: Dense | None = None
    """Layer before the classes; none: only W_C; default: as the model's family has it."""
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
    """How the windows of a long text are merged: by the mean of their scores, or by the highest."""
    auto: Annotated[bool, Flag(panel="Training")] = False
    """For small data: compare linear heads, fine-tuning and TF-IDF by cross-validation, and keep the best."""
    minutes: Annotated[float, MINUTES, Flag(panel="Training")] | None = None
    """Time budget of --auto; default: 2."""


def classification_head(
    train: Dataset[TextExample], options: ClassifyOptions, *, natural: Mapping[str, Any]
) -> ClassificationConfig:
    """`natural` is what the model's family has: its layer before the classes and its way of pooling."""
    kind = train.kind or "multi-class"
    counts = train.labels()
    labels = ("value",) if kind == "regression" else train.label_names()
    if kind == "multi-class" and len(labels) < 2:
        raise DataError(f"{train.source}: all examples are labelled {labels[0]!r}; classification needs two classes")
    settings = head_settings(options, natural)
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
    """Weight of each class: n / (K n_k) if balanced (as in scikit-learn), no / yes for multi-label; or as given."""
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


BOTH_ORDERS = "orders: a pair is read in both, and their vectors are added, so that neither text is the first"


def reads_both_orders(
    bundle: Bundle,
    train: Dataset[TextExample],
    config: ClassificationConfig,
    *,
    present: ClassificationConfig | None,
    asked: bool | None,
) -> bool:
    """`present` is the model's own head, which is kept if it is for the same labels."""
    pairs = all(example.pair is not None for example in train.examples)
    if asked is not None:
        if asked and not pairs:
            raise UsageError(f"both_orders is for pairs of texts, and {train.source} has single ones; leave it out")
        return asked
    if present is not None and config.same_labels(present) and present.kind == config.kind:
        return bool(present.both_orders)
    return pairs and has_delimiters(bundle.tokenizer) and (train.symmetric or config.kind == "regression")


Pool = Literal["cls", "last", "mean", "max"]
POOL_NAMES: dict[Pool, str] = {
    "cls": "[CLS]",
    "last": "its last token",
    "mean": "the mean of its tokens",
    "max": "the maximum of its tokens",
}


class Pooling(NamedTuple):
    pool: Pool
    why: str

    def describe(self) -> str:
        """``pooling: a text is read by the mean of its tokens, as …``"""
        return f"pooling: a text is read by {POOL_NAMES[self.pool]}, {self.why}"


def pooling_of(
    bundle: Bundle,
    *,
    labels: Sequence[str],
    trained: Trainable,
    family: Pool,
    head: ClassificationConfig | None = None,
    asked: Pool | None = None,
) -> Pooling:
    """`family` is the pooling of the model's family, `head` the model's own head; `asked` overrides both."""
    if asked is not None:
        return Pooling(asked, "as requested")
    if head is not None and head.labels == tuple(labels):
        return Pooling(head.pool, "as the model's own head for these labels")
    if trained != "head":
        return Pooling(family, "as classifiers of its family")
    trained_with = bundle.pooling
    if (known := next((pool for pool in POOL_NAMES if pool == trained_with), None)) is not None:
        return Pooling(known, "as this sentence encoder was trained")
    if trained_with:
        return Pooling("mean", f"since its own pooling ({trained_with}) is not offered")
    if family not in SUMMARIES:
        return Pooling(family, "as classifiers of its family")
    return Pooling("mean", "since the encoder is frozen and its [CLS] was not trained to represent a text")
