"""Options of vectors (units, layers, pooling), and how a model itself turns a text into a vector.

    EmbedOptions(unit="word", layers="last4", pool="mean")
    embed_options(model, unit="sentence")                    # as the sentence encoder was trained
    embed_options(model, unit="sentence", pool="cls")        # as requested: no linear layer, not normalised

A sentence encoder (from `larvatus finetune embed`, or a `sentence-transformers` directory) has its own pooling, linear
layers and normalisation. They apply to whole texts of the last layer, unless a pooling, other layers or a standardiser
are requested. So does the adapter that a model may have (`models/bundle/sentence_adapter.py`); with `pool="mean"`, the
vector of its text is the plain mean by the model's own weights. Any other model takes the mean of the tokens.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Count, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.inference.vectors.layers import PARTS, Layers, Pool, Unit
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.models.bundle.sentence_modules import unsupported_modules
from larvatus.models.heads.embedding import Embedding
from larvatus.models.loaded import LoadedModel
from larvatus.models.nn.encoder import Encoder

__all__ = ["EmbedOptions", "Pool", "Precision", "Unit", "VectorOptions"]

Precision = Literal["fp32", "bf16"]
_PIECES: tuple[Pool, ...] = ("mean", "sum", "max", "first", "last")
_WHOLE: tuple[Pool, ...] = ("mean", "max", "cls")


class VectorOptions(Settings):
    """Options of vectors, for Python and for commands."""

    unit: Unit = "sentence"
    """What gets a vector; span: words between stars, as in the *bank* of a river."""
    layers: Layers | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all. Default: the
    model's own for words, mostly the last; the last for texts."""
    pool: Pool | None = None
    """Words, spans: mean, sum, max, first, last. Texts: mean, max, cls. Default: mean, or as the model was trained."""
    normalise: bool | None = None
    """Scale vectors to length 1; default: no, or as the sentence encoder has it."""
    overlap: SizeOrNone | None = None
    """Tokens that windows of a long text share, at least; a quarter of a window by default."""
    precision: Precision = "fp32"
    """bf16 is for GPUs, and for CPUs that support it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in get_args(Unit):
            raise UsageError(f"{self.unit!r} is not a unit{did_you_mean(str(self.unit), get_args(Unit))}")
        allowed = _PIECES if self.unit in PARTS else _WHOLE
        if self.pool is not None and self.pool not in allowed:
            raise UsageError(f"a {self.unit} cannot be pooled by {self.pool!r}; use {', '.join(allowed)}")
        if self.precision not in get_args(Precision):
            raise UsageError(f"precision is fp32 or bf16, not {self.precision!r}")


class EmbedOptions(VectorOptions):
    """`sentence` and `document` are the whole text, from [CLS] to [SEP]."""

    layers: Layers = "last"
    pool: Pool = "mean"
    """How the tokens of a unit are pooled."""
    normalise: bool = False
    """Scale vectors to length 1."""
    projected: bool = False
    """Embed as a sentence encoder: with the weights of its adapter, and the linear layers after its pooling."""
    tokens: Count | None = None
    """Tokens of a batch; by default what suits the device. Vectors do not depend on it."""
    standardise: Standardiser | None = None
    """Scale every dimension to mean 0 and deviation 1 before `normalise`; it must be fitted for these units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projected and (self.unit in PARTS or self.layers != "last" or self.standardise is not None):
            raise UsageError("linear layers and adapter of a sentence encoder are for whole texts of its last layer")
        if self.standardise is not None:
            self.standardise.check(self.unit, self.pool)


# The model's own pooling.


def embed_options(
    model: LoadedModel,
    *,
    layers: Layers | None = None,
    pool: Any = None,
    normalise: bool | None = None,
    **settings: Any,
) -> EmbedOptions:
    """Options of vectors. `layers` None are the model's own for words, and the last one for texts; `pool` and
    `normalise` None are the model's own for whole texts, else mean and no.

    Args:
        model: The model that embeds.
        layers: Which layers, as in `EmbedOptions`.
        pool: Pooling, by name.
        normalise: Scale vectors to length 1.
        **settings: Other settings of `EmbedOptions`.
    """
    of_words = settings.get("unit", "sentence") in PARTS
    settings["layers"] = layers = word_layers(model, layers) if of_words else "last" if layers is None else layers
    plain = settings.get("standardise") is None and layers == "last"
    if pool is not None or not plain or of_words:
        return EmbedOptions(pool=pool or "mean", normalise=bool(normalise), **settings)
    head = model.sentence_head
    if model.token_head is not None:
        raise UsageError(
            f"{model.bundle.path} gives {model.token_head.config.describe()}, not one vector for a text: use "
            "model.predict and larvatus search, or name a pooling (pool: mean, max or cls) to embed with its encoder"
        )
    if head is None:
        _refuse_unknown_modules(model)
        return EmbedOptions(pool="mean", normalise=bool(normalise), **settings)
    trained = head.config
    return EmbedOptions(
        pool=trained.pool,
        normalise=trained.normalise if normalise is None else normalise,
        projected=bool(trained.projections) or model.bundle.adapter is not None,
        **settings,
    )


def word_layers(model: LoadedModel, layers: Layers | None) -> Layers:
    """The requested layers of word vectors, or the model's own."""
    return model.bundle.word_layers if layers is None else layers


def vector_encoder(model: LoadedModel, options: EmbedOptions) -> Encoder:
    """The encoder that gives these vectors: with the weights of the adapter, or the model's own."""
    return model.sentence_encoder if options.projected else model.encoder


def vector_head(model: LoadedModel, options: EmbedOptions) -> Embedding | None:
    """The head that projects these vectors, if any does."""
    return model.sentence_head if options.projected else None


def vector_identity(model: LoadedModel, options: EmbedOptions) -> str:
    """Fingerprint of the weights that give these vectors."""
    return model.vector_fingerprint if options.projected else model.fingerprint


def vector_size(model: LoadedModel, options: EmbedOptions) -> int:
    """Size of a vector with these options."""
    head = vector_head(model, options)
    return model.encoder.width if head is None else head.size_of_vector


def _refuse_unknown_modules(model: LoadedModel) -> None:
    bundle = model.bundle
    if bundle.pooling:
        modules = unsupported_modules(bundle.path, bundle.tokenizer.template, hidden=model.encoder.width)
        raise UsageError(
            f"{bundle.path} is a sentence encoder with {modules or bundle.pooling}, which Larvatus does not have; name "
            "a pooling (pool: mean, max or cls) to embed with its encoder only"
        )
