"""How a model itself turns a text into a vector, where nothing else is requested.

    embed_options(model, unit="sentence")                    # as the sentence encoder was trained
    embed_options(model, unit="sentence", pool="cls")        # as requested: no linear layer, not normalised

A sentence encoder (from `larvatus finetune embed`, or a `sentence-transformers` directory) has its own pooling, linear
layers and normalisation. They apply to whole texts of the last layer, unless a pooling, other layers or a standardiser
are requested. So does the adapter that a model may have (`models/bundle/sentence_adapter.py`); with `pool="mean"`, the
vector of its text is the plain mean by the model's own weights. Any other model takes the mean of the tokens.
"""

from __future__ import annotations

from typing import Any

from larvatus.core.errors import UsageError
from larvatus.inference.vectors.layers import PARTS, Layers
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.models.bundle.sentence_modules import unsupported_modules
from larvatus.models.heads.embedding import Embedding
from larvatus.models.loaded import LoadedModel
from larvatus.models.nn.encoder import Encoder


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
