"""Vectors: `{"texts": ["the river"], "unit": "word", "layers": "last4"}` → each unit with its characters and vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from larvatus.inference.model import Model
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.results import Vectors
from larvatus.inference.vectors.units import PARTS, Pool, Unit
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.interfaces.serve.cost import RequestCost, windowed
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, Subject, standardiser


class EmbedBody(Body):
    """Texts, or lists of words, and what gets a vector."""

    texts: str | tuple[str | tuple[str, ...], ...]
    """A text, or several; one of several may be a list of words."""
    unit: Unit = "sentence"
    """What gets a vector. Spans are marked with stars: the *bank* of the river."""
    layers: str | int | tuple[float, ...] = "last"
    """last, last4 (mean), last4-sum, a number (0: embeddings), all, or a weight for each layer."""
    pool: Pool = "mean"
    """Words and spans: mean, sum, max, first, last of their subwords; sentences: mean, max, cls."""
    normalise: bool = False
    """Bring vectors to length 1."""
    standardise: str | None = None
    """z-scores: the name that isotropy fit saved with the model."""


class Embed(Operation[EmbedBody]):
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
        """A vector for each unit, at most one a token, of each layer."""
        units = sum(lengths) if options.unit in PARTS else 1
        layers = model.encoder.depth + 1 if options.layers == "all" else 1
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach), units * layers * model.encoder.width)

    def run(self, subject: Subject, items: Sequence[Item], options: EmbedBody) -> list[dict[str, Any]]:
        model = subject.model
        chosen = EmbedOptions(
            unit=options.unit,
            layers=options.layers,
            pool=options.pool,
            normalise=options.normalise,
            standardise=standardiser(subject, options.standardise),
        )
        return [with_coverage(vectors) for vectors in vectors_of(model, items, chosen)]


def vectors_of(model: Model, items: Sequence[Item], options: EmbedOptions) -> list[Vectors]:
    texts = [item if isinstance(item, str) else list(item) for item in items]
    return list(embed_texts(model.encoder, model.tokenizer, texts, options))


def with_coverage(vectors: Vectors) -> dict[str, Any]:
    coverage = {"tokens": vectors.tokens, "read": vectors.tokens, "windows": vectors.windows}
    return {**vectors.to_dict(), "coverage": coverage}
