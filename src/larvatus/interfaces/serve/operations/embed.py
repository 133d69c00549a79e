"""Vectors: `{"texts": ["the river"], "unit": "word", "layers": "last4"}` → each unit with its characters and vector.

/v1/embeddings has the form of OpenAI's API, so that its clients work unchanged: `{"input": ["the river"]}` →
`{"object": "list", "data": […]}`. Vectors are of whole texts, pooled as the model's package says (by default
mean), and of length 1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from larvatus.inference.model import Model
from larvatus.inference.vectors.layers import PARTS, Pool, Unit
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.own_pooling import embed_options, vector_encoder, vector_head, vector_size
from larvatus.inference.vectors.results import Vectors
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.interfaces.serve.errors import CannotDo
from larvatus.interfaces.serve.operations.operation import (
    Body,
    Item,
    Operation,
    RequestCost,
    ServedModel,
    standardiser,
    windowed,
)


class EmbedBody(Body):
    """Texts, or lists of words, and the units that get a vector."""

    texts: str | tuple[str | tuple[str, ...], ...]
    """One text, or a list of texts; a text in a list can be a list of words."""
    unit: Unit = "sentence"
    """Unit that gets a vector. Spans are marked with stars: the *bank* of the river."""
    layers: str | int | tuple[float, ...] = "last"
    """last, last4 (mean), last4-sum, a number (0: embeddings), all, or a weight for each layer."""
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
    """Size of a vector; it must be that of the model."""
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
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach), vector_size(model, embed_options(model)))

    def run(self, subject: ServedModel, items: Sequence[Item], options: EmbeddingsBody) -> list[dict[str, Any]]:
        model = subject.model
        chosen = embed_options(model, normalise=True)
        size = vector_size(model, chosen)
        if options.dimensions not in (None, size):
            raise CannotDo(f"{subject.name} has {size} dimensions and no other number; leave out dimensions")
        embedded = vectors_of(model, items, chosen)
        as_base64 = options.encoding_format == "base64"
        return [
            {
                "vector": base64.b64encode(text.array.astype("<f4").tobytes()).decode()
                if as_base64
                else text.array.tolist(),
                "tokens": text.tokens,
            }
            for text in embedded
        ]

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
