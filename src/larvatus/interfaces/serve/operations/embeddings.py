"""Vectors in OpenAI's form: `{"input": ["the river"], "model": "english"}` → `{"object": "list", "data": […]}`.

Its clients work unchanged. Vectors are of whole texts, pooled as the model's package says (mean where it says nothing),
and of length 1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from larvatus.inference.model import Model
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.units import Pool
from larvatus.interfaces.serve.cost import RequestCost, windowed
from larvatus.interfaces.serve.operations.embed import vectors_of
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, Subject
from larvatus.interfaces.serve.refusals import CannotDo

Length = Annotated[int, Meta(ge=1)]


class EmbeddingsBody(Body):
    """What clients of OpenAI's embeddings send."""

    input: str | tuple[str, ...]
    """A text, or several; token ids are not taken."""
    encoding_format: Literal["float", "base64"] = "float"
    """base64: of little-endian float32."""
    dimensions: Length | None = None
    """Numbers of a vector: those that the model gives, or it is refused."""
    user: str | None = None
    """Taken and not used."""


class Embeddings(Operation[EmbeddingsBody]):
    name, title, Body = "embeddings", "Vectors of whole texts, in the form of OpenAI's embeddings.", EmbeddingsBody
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
        if (model.bundle.pooling or "mean") in get_args(Pool):
            return None
        return f"its sentences are pooled by {model.bundle.pooling}, which /v1/embeddings does not know; use /v1/embed"

    def estimate(self, model: Model, item: Item, options: EmbeddingsBody, lengths: Sequence[int]) -> RequestCost:
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach), model.encoder.width)

    def run(self, subject: Subject, items: Sequence[Item], options: EmbeddingsBody) -> list[dict[str, Any]]:
        model = subject.model
        if options.dimensions not in (None, model.encoder.width):
            raise CannotDo(
                f"{subject.name} gives {model.encoder.width} dimensions, no other number; leave out dimensions"
            )
        pool: Any = model.bundle.pooling or "mean"
        embedded = vectors_of(model, items, EmbedOptions(pool=pool, normalise=True))
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
