"""What the encoder computes: vectors of texts, and attention weights.

    {"texts": ["the river"], "unit": "word", "layers": "last4"}     → each unit with its characters and vector
    {"text": "The cat sat."}                                        → tokens, weights [layers][heads][T][T], head types

/v1/embeddings has the form of OpenAI's API, so that its clients work unchanged: `{"input": ["the river"]}` →
`{"object": "list", "data": […]}`. Vectors are of whole texts, pooled as the model's package says (by default
mean), and of length 1; `dimensions` keeps the first numbers of each. T tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.inference.interpret.attention import attend, check_head
from larvatus.inference.interpret.heads import text_statistics
from larvatus.inference.model import Model
from larvatus.inference.vectors.layers import PARTS, Pool, Unit
from larvatus.inference.vectors.pooling import EmbedOptions, embed_options, vector_encoder, vector_head, vector_size
from larvatus.inference.vectors.vectors import Vectors, embed_texts
from larvatus.interfaces.serve.operations.operation import (
    Body,
    Item,
    Operation,
    RequestCost,
    ServedModel,
    standardiser,
    windowed,
)
from larvatus.interfaces.serve.responses import BadRequest, OverLimit


class EmbedBody(Body):
    """Texts, or lists of words, and the units that get a vector."""

    texts: str | tuple[str | tuple[str, ...], ...]
    """One text, or a list of texts; a text in a list can be a list of words."""
    unit: Unit = "sentence"
    """Unit that gets a vector. Spans are marked with stars: the *bank* of the river."""
    layers: str | int | tuple[float, ...] | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), all, or a weight for each layer. Null: the last; for
    tokens, words and spans the model's own, mostly the last."""
    pool: Pool | None = None
    """Words and spans: mean, sum, max, first, last of their subwords; sentences: mean, max, cls. Null: mean, or as a
    sentence encoder was trained."""
    normalise: bool | None = None
    """Scale vectors to length 1. Null: no, or as the sentence encoder has it."""
    standardise: str | None = None
    """z-scores: the name that isotropy fit saved with the model."""


class EmbedOperation(Operation[EmbedBody]):
    name, title, Body = "embed", "Contextual vectors of tokens, words, spans or whole texts.", EmbedBody
    examples: ClassVar = {
        "a sentence": {"texts": "The bank of the river.", "normalise": True},
        "words": {"texts": ["The bank of the river."], "unit": "word", "layers": "last4"},
    }
    answer_example: ClassVar = {
        "model": "english",
        "results": [
            {
                "text": "the river",
                "unit": "sentence",
                "layers": "last",
                "tokens": 2,
                "windows": 1,
                "units": [{"text": "the river", "start": 0, "end": 9, "vector": [0.12, -0.4]}],
                "coverage": {"tokens": 2, "read": 2, "windows": 1},
            }
        ],
    }

    def lacks(self, model: Model) -> str | None:
        return None

    def estimate(self, model: Model, item: Item, options: EmbedBody, lengths: Sequence[int]) -> RequestCost:
        """A vector for each unit, at most one per token, of each layer."""
        units = sum(lengths) if options.unit in PARTS else 1
        layers = model.encoder.depth + 1 if options.layers == "all" else 1
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach), units * layers * model.encoder.width)

    def run(self, subject: ServedModel, items: Sequence[Item], options: EmbedBody) -> list[dict[str, Any]]:
        model = subject.model
        chosen = embed_options(
            model,
            unit=options.unit,
            layers=options.layers,
            pool=options.pool,
            normalise=options.normalise,
            standardise=standardiser(subject, options.standardise),
        )
        return [with_coverage(vectors) for vectors in vectors_of(model, items, chosen)]


def vectors_of(model: Model, items: Sequence[Item], options: EmbedOptions) -> list[Vectors]:
    texts = [item if isinstance(item, str) else list(item) for item in items]
    encoder, head = vector_encoder(model, options), vector_head(model, options)
    return list(embed_texts(encoder, model.tokenizer, texts, options, head=head))


def with_coverage(vectors: Vectors) -> dict[str, Any]:
    coverage = {"tokens": vectors.tokens, "read": vectors.tokens, "windows": vectors.windows}
    return {**vectors.to_dict(), "coverage": coverage}


Length = Annotated[int, Meta(ge=1)]


class EmbeddingsBody(Body):
    """The body that clients of OpenAI's embeddings API send."""

    input: str | tuple[str, ...]
    """One text, or a list of texts; token ids are not accepted."""
    encoding_format: Literal["float", "base64"] = "float"
    """base64 encodes little-endian float32."""
    dimensions: Length | None = None
    """Size of a vector: the first numbers of the model's vector, scaled to length 1 again (for Matryoshka models)."""
    user: str | None = None
    """Accepted and ignored."""


class EmbeddingsOperation(Operation[EmbeddingsBody]):
    name, title, Body = "embeddings", "Vectors of whole texts, in the form of OpenAI's embeddings API.", EmbeddingsBody
    texts_field = "input"
    whole = True
    examples: ClassVar = {"two texts": {"input": ["The bank of the river.", "A bank in town."]}}
    answer_example: ClassVar = {
        "object": "list",
        "model": "english",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.06, -0.02]}],
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
    }

    def lacks(self, model: Model) -> str | None:
        if not model.bundle.pooling or model.sentence_head is not None:
            return None
        return f"it pools sentences by {model.bundle.pooling}, which /v1/embeddings does not support; use /v1/embed"

    def estimate(self, model: Model, item: Item, options: EmbeddingsBody, lengths: Sequence[int]) -> RequestCost:
        size = vector_size(model, embed_options(model))
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach), min(size, options.dimensions or size))

    def run(self, subject: ServedModel, items: Sequence[Item], options: EmbeddingsBody) -> list[dict[str, Any]]:
        model = subject.model
        chosen = embed_options(model, normalise=True)
        size = vector_size(model, chosen)
        if options.dimensions is not None and options.dimensions > size:
            raise BadRequest(
                f"dimensions is {options.dimensions:,}, and a vector of {subject.name} has {size:,}; give at most that"
            )
        as_base64 = options.encoding_format == "base64"
        given = []
        for text in vectors_of(model, items, chosen):
            vector_D = first_dimensions(text.array, options.dimensions or size)
            coded = base64.b64encode(vector_D.astype("<f4").tobytes()).decode() if as_base64 else vector_D.tolist()
            given.append({"vector": coded, "tokens": text.tokens})
        return given

    def answer(self, name: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        tokens = sum(result["tokens"] for result in results)
        return {
            "object": "list",
            "model": name,
            "data": [
                {"object": "embedding", "index": number, "embedding": result["vector"]}
                for number, result in enumerate(results)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


def first_dimensions(vector_D: Floats, size: int) -> Floats:
    """The first numbers of a unit vector as a unit vector (Kusupati et al. 2022: Matryoshka representations).

    >>> first_dimensions(np.array([0.6, 0.0, 0.8], np.float32), 2).tolist()
    [1.0, 0.0]
    """
    cut = vector_D[:size]
    length = float(np.linalg.norm(cut))
    return cut if size == len(vector_D) or length == 0.0 else (cut / length).astype(np.float32)


# Attention weights.

MOST_NUMBERS = 1 << 21
"""Most weights in a response."""
Number = Annotated[int, Meta(ge=1)]


class AttentionBody(Body):
    """A text and the requested heads."""

    text: str
    """One text that fits into the model's window."""
    layer: Number | None = None
    """Layer, counted from 1; all by default."""
    head: Number | None = None
    """Head, counted from 1; all by default."""


class AttentionOperation(Operation[AttentionBody]):
    name, title, Body = "attention", "Attention weights of every head on a text.", AttentionBody
    texts_field = "text"
    together = False
    whole = True
    examples: ClassVar = {
        "a text": {"text": "The cat sat on the mat."},
        "a layer": {"text": "The cat sat on the mat.", "layer": 2},
    }
    answer_example: ClassVar = {
        "model": "english",
        "text": "cat",
        "tokens": ["[CLS]", "cat", "[SEP]"],
        "layers": [1],
        "heads": [1],
        "weights": [[[[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]]],
        "types": [{"layer": 1, "head": 1, "type": "self", "entropy": 0.8}],
    }

    def lacks(self, model: Model) -> str | None:
        try:
            return None if model.encoder.heads else "it has no attention heads"
        except UsageError as fault:
            return str(fault)

    def options(self, body: AttentionBody) -> AttentionBody:
        return AttentionBody(text="", layer=body.layer, head=body.head)

    def estimate(self, model: Model, item: Item, options: AttentionBody, lengths: Sequence[int]) -> RequestCost:
        """Weights between all pairs of tokens. A text longer than the model's window is refused later."""
        tokens = min(sum(lengths) + model.tokenizer.template.single.special_count, model.encoder.reach)
        layers = 1 if options.layer else model.encoder.depth
        heads = 1 if options.head else model.encoder.heads
        return RequestCost(tokens, layers * heads * tokens**2)

    def run(self, subject: ServedModel, items: Sequence[Item], options: AttentionBody) -> list[dict[str, Any]]:
        return [self._attended(subject.model, text, options) for text in items]

    def _attended(self, model: Model, text: str, options: AttentionBody) -> dict[str, Any]:
        encoder = model.encoder
        check_head(options.layer or 1, options.head or 1, layers=encoder.depth, heads=encoder.heads)
        layers = [options.layer] if options.layer else list(range(1, encoder.depth + 1))
        heads = [options.head] if options.head else list(range(1, encoder.heads + 1))
        tokens = len(model.tokenizer.encode_fast([text])[0]) + model.tokenizer.template.single.special_count
        numbers = encoder.depth * encoder.heads * tokens**2
        if numbers > 8 * MOST_NUMBERS or len(layers) * len(heads) * tokens**2 > MOST_NUMBERS:
            raise OverLimit(
                f"{tokens:,} tokens make {numbers:,} weights, and this server gives {MOST_NUMBERS:,} at most; "
                "shorten the text, or request one layer or head"
            )
        attention = attend(encoder, model.tokenizer, text)
        chosen = attention.weights[layers[0] - 1 : layers[-1], heads[0] - 1 : heads[-1]]
        types = [row.to_dict() for row in text_statistics(attention) if row.layer in layers and row.head in heads]
        return {
            "text": text,
            "tokens": list(attention.tokens),
            "layers": layers,
            "heads": heads,
            "weights": chosen.tolist(),
            "types": types,
            "coverage": {"tokens": len(attention.tokens), "read": len(attention.tokens), "windows": 1},
        }

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"model": name, **results[0]}
