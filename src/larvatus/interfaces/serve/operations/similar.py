"""Cosines between word instances: `{"texts": ["the *bank* of the river", "the *bank* raised rates"]}` → a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from larvatus.inference.model import Model
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.similarity import Instance, instance, similarities
from larvatus.inference.vectors.units import Pool
from larvatus.interfaces.serve.cost import RequestCost, windowed
from larvatus.interfaces.serve.errors import BadRequest, WrongBody
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, is_empty, standardiser
from larvatus.interfaces.serve.served_model import ServedModel


class InstancesBody(Body):
    """Texts with one marked word each, and the vectors of these words."""

    texts: tuple[str, ...]
    """Texts, each with a word between stars, or given by `spans`."""
    spans: tuple[tuple[int, int], ...] | None = None
    """Characters [start, end) of each word, instead of stars."""
    layers: str | int | tuple[float, ...] = "last"
    """last, last4 (mean), last4-sum, a number (0: embeddings), or a weight for each layer."""
    pool: Pool = "mean"
    """Pooling of subwords: mean, sum, max, first or last."""
    standardise: str | None = None
    """z-scores: the name that isotropy fit saved with the model."""


def instances_of(body: InstancesBody) -> list[Instance]:
    """The marked word of each text."""
    if not body.texts or any(is_empty(text) for text in body.texts):
        raise BadRequest("a text is empty, or there is none; give texts with a word between stars")
    if body.spans is not None and len(body.spans) != len(body.texts):
        raise WrongBody(f"{len(body.texts)} texts, but {len(body.spans)} spans; give one for each text")
    return [instance(text, None if body.spans is None else body.spans[n]) for n, text in enumerate(body.texts)]


def options_of(subject: ServedModel, body: InstancesBody) -> EmbedOptions:
    chosen = standardiser(subject, body.standardise)
    return EmbedOptions(unit="span", layers=body.layers, pool=body.pool, standardise=chosen)


def described(each: Instance) -> dict[str, Any]:
    return {"text": each.text, "word": each.word, "start": each.start, "end": each.end}


class InstancesOperation(Operation[Any]):
    """An operation whose texts are one item: its result is about all of them."""

    together = False
    whole = True

    def lacks(self, model: Model) -> str | None:
        return None

    def items(self, body: InstancesBody) -> list[Item]:
        instances_of(body)  # refuses wrong bodies before they are queued
        return [body]

    def options(self, body: InstancesBody) -> Any:
        return msgspec.structs.replace(body, model=None, texts=(), spans=None)

    def estimate(self, model: Model, item: InstancesBody, options: Any, lengths: Sequence[int]) -> RequestCost:
        """All pairs of instances are compared."""
        return RequestCost(sum(windowed(tokens, reach=model.encoder.reach) for tokens in lengths), len(item.texts) ** 2)

    def count(self, item: InstancesBody) -> int:
        return len(item.texts)

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"model": name, **results[0]}


class SimilarOperation(InstancesOperation):
    name, title, Body = "similar", "Cosines between the marked words of texts.", InstancesBody
    examples: ClassVar = {
        "two banks": {"texts": ["the *bank* of the river", "the *bank* raised its rates"], "layers": "last4"}
    }
    answer_example: ClassVar = {
        "model": "english",
        "instances": [
            {"text": "the bank of the river", "word": "bank", "start": 4, "end": 8},
            {"text": "the bank raised its rates", "word": "bank", "start": 4, "end": 8},
        ],
        "cosines": [[1.0, 0.42], [0.42, 1.0]],
    }

    def run(self, subject: ServedModel, items: Sequence[Item], options: Any) -> list[dict[str, Any]]:
        return [self._compared(subject, body) for body in items]

    def _compared(self, subject: ServedModel, body: InstancesBody) -> dict[str, Any]:
        model = subject.model
        result = similarities(model.encoder, model.tokenizer, instances_of(body), options_of(subject, body))
        return {"instances": list(map(described, result.instances)), "cosines": result.matrix.tolist()}
