"""Word instances, one marked in each text: cosines between them, and clusters of similar use.

    {"texts": ["the *bank* of the river", "the *bank* raised rates"]}     → /v1/similar, a matrix
    {"texts": ["the *bank* of the river", …], "clusters": 2}              → /v1/senses, clusters, points, nearest pairs

If the server has sense vectors of the model (`--senses DIR`), /v1/senses also names the WordNet sense of each word.

Clusters are agglomerative, by the mean cosine between clusters (Sokal & Michener 1958): as many as requested, or the
number with the best silhouette (Rousseeuw 1987), or one where no split is worthwhile. This suits some dozens of texts
that people type; maps of a corpus use k-means (`inference/maps/clusters.py`), which needs many more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from larvatus.core.arrays import Doubles, Ints
from larvatus.inference.maps.clusters import (
    MAX_CLUSTERS,
    WORTHWHILE,
    by_size,
    context_words,
    principal_components,
    typical_words,
)
from larvatus.inference.model import Model
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.layers import Pool, layers_name
from larvatus.inference.vectors.pooling import EmbedOptions, embed_options
from larvatus.inference.vectors.similarity import WordInstance, instance_vectors, similarities, word_instance
from larvatus.interfaces.serve.operations.operation import (
    Body,
    Item,
    Operation,
    RequestCost,
    ServedModel,
    is_empty,
    standardiser,
    windowed,
)
from larvatus.interfaces.serve.responses import BadRequest, WrongBody


class InstancesBody(Body):
    """Texts with one marked word each, and the vectors of these words."""

    texts: tuple[str, ...]
    """Texts, each with a word between stars, or given by `spans`."""
    spans: tuple[tuple[int, int], ...] | None = None
    """Characters [start, end) of each word, instead of stars."""
    layers: str | int | tuple[float, ...] | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or a weight for each layer. Null: the model's own,
    mostly the last."""
    pool: Pool = "mean"
    """Pooling of subwords: mean, sum, max, first or last."""
    standardise: str | None = None
    """z-scores: the name that isotropy fit saved with the model."""


def instances_of(body: InstancesBody) -> list[WordInstance]:
    """The marked word of each text."""
    if not body.texts or any(is_empty(text) for text in body.texts):
        raise BadRequest("a text is empty, or there is none; give texts with a word between stars")
    if body.spans is not None and len(body.spans) != len(body.texts):
        raise WrongBody(f"{len(body.texts)} texts, but {len(body.spans)} spans; give one for each text")
    return [word_instance(text, None if body.spans is None else body.spans[n]) for n, text in enumerate(body.texts)]


def options_of(subject: ServedModel, body: InstancesBody) -> EmbedOptions:
    chosen = standardiser(subject, body.standardise)
    return embed_options(subject.model, unit="span", layers=body.layers, pool=body.pool, standardise=chosen)


def described(each: WordInstance) -> dict[str, Any]:
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
        "layers": "last",
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
        return {
            "layers": result.layers,
            "instances": list(map(described, result.instances)),
            "cosines": result.matrix.tolist(),
        }


NEAREST = 20
"""Nearest pairs in the response."""


Number = Annotated[int, Meta(ge=1, le=64)]


class SensesBody(InstancesBody):
    """Texts, each with a word between stars, and the number of clusters."""

    clusters: Number | None = None
    """Number of clusters; by default chosen by silhouette."""


class SensesOperation(InstancesOperation):
    name, title, Body = "senses", "Similar uses of a word: clusters, points, nearest pairs.", SensesBody
    examples: ClassVar = {
        "banks": {
            "texts": [
                "the *bank* of the river",
                "a steep *bank* of sand",
                "the *bank* raised its rates",
                "she went to the *bank* for a loan",
            ],
            "clusters": 2,
        }
    }
    answer_example: ClassVar = {
        "model": "english",
        "layers": "last",
        "instances": [
            {"text": "the bank of the river", "word": "bank", "start": 4, "end": 8, "cluster": 0, "point": [0.4, -0.1]}
        ],
        "clusters": [{"number": 0, "size": 1, "name": "all"}],
        "nearest": [],
    }

    def run(self, subject: ServedModel, items: Sequence[Item], options: Any) -> list[dict[str, Any]]:
        return [self._grouped(subject, body) for body in items]

    def _grouped(self, subject: ServedModel, body: SensesBody) -> dict[str, Any]:
        model, instances, options = subject.model, instances_of(body), options_of(subject, body)
        unit = instance_vectors(model.encoder, model.tokenizer, instances, options).astype(np.float64)
        numbers = clusters(unit, body.clusters)
        points = principal_components(unit, 2).tolist()
        records = [
            {**described(each), "cluster": int(number), "point": point}
            for each, number, point in zip(instances, numbers, points, strict=True)
        ]
        if subject.senses is not None:
            records = [
                {**record, "sense": _sense(subject.senses, each)}
                for record, each in zip(records, instances, strict=True)
            ]
        return {
            "layers": layers_name(options.layers),
            "instances": records,
            "clusters": _named(instances, numbers),
            "nearest": _nearest(unit),
        }


def _named(instances: Sequence[WordInstance], numbers: Ints) -> list[dict[str, Any]]:
    contexts = [context_words(each.text, [each.word]) for each in instances]
    sizes = np.bincount(numbers).tolist()
    names = typical_words(contexts, numbers)
    return [{"number": n, "size": size, "name": name} for n, (size, name) in enumerate(zip(sizes, names, strict=True))]


def _nearest(unit: Doubles) -> list[dict[str, Any]]:
    """Pairs by cosine, highest first."""
    first, second = np.triu_indices(len(unit), 1)
    cosines = np.clip((unit @ unit.T)[first, second], -1.0, 1.0)
    order = np.argsort(-cosines, kind="stable")[:NEAREST]
    return [{"pair": [int(first[n]), int(second[n])], "cosine": float(cosines[n])} for n in order]


def _sense(tagger: SenseTagger, each: WordInstance) -> dict[str, Any] | None:
    """WordNet sense of the word; None if WordNet does not have the word."""
    for word in tagger.tag(each.text):
        if word.start < each.end and each.start < word.end and word.key is not None:
            synset = None if word.synset is None else tagger.wordnet.synset(word.synset)
            return {**word.to_dict(), "definition": None if synset is None else synset.definition}
    return None


def clusters(vectors: Doubles, count: int | None = None) -> Ints:
    """Cluster number of each vector, [N, D] → [N]: 0, 1, … by size, the largest first.

    >>> clusters(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [1.0, 0.1]])).tolist()
    [0, 0, 1, 1, 0]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    apart_NN = np.clip(1 - unit @ unit.T, 0.0, 2.0)
    np.fill_diagonal(apart_NN, 0.0)
    most = min(MAX_CLUSTERS, len(vectors) - 1) if count is None else min(count, len(vectors))
    by_count = _merged(apart_NN, most)
    if count is not None:
        return by_size(by_count[most])
    scores = {k: _silhouette(apart_NN, numbers) for k, numbers in by_count.items() if k > 1}
    best = max(scores, key=lambda k: (scores[k], -k), default=1)
    if best == 1 or scores[best] < WORTHWHILE:
        return np.zeros(len(vectors), np.int64)
    return by_size(by_count[best])


def _merged(apart_NN: Doubles, most: int) -> dict[int, Ints]:
    """Clusterings with 1 to `most` clusters: the two nearest clusters are merged repeatedly."""
    numbers = np.arange(len(apart_NN))
    sizes = np.ones(len(apart_NN))
    apart = apart_NN.copy()
    np.fill_diagonal(apart, np.inf)
    by_count = {}
    for count in range(len(numbers), 0, -1):
        if count <= max(1, most):
            by_count[count] = numbers.copy()
        if count > 1:
            a, b = sorted(np.unravel_index(int(apart.argmin()), apart.shape))
            mean = (sizes[a] * apart[a] + sizes[b] * apart[b]) / (sizes[a] + sizes[b])
            apart[a], apart[:, a] = mean, mean
            apart[b], apart[:, b], apart[a, a] = np.inf, np.inf, np.inf
            sizes[a] += sizes[b]
            numbers[numbers == b] = a
    return by_count


def _silhouette(apart_NN: Doubles, numbers: Ints) -> float:
    """Mean silhouette: how much nearer an instance's own cluster is than the next; 0 in a cluster of one."""
    names = np.unique(numbers)
    member_NK = (numbers[:, None] == names).astype(np.float64)
    sums_NK, counts_K = apart_NN @ member_NK, member_NK.sum(0)
    inside = member_NK.astype(bool)
    others = counts_K[inside.argmax(1)] - 1
    within = sums_NK[inside] / np.maximum(others, 1)
    next_nearest = np.where(inside, np.inf, sums_NK / counts_K).min(1)
    scores = np.where(others > 0, (next_nearest - within) / np.maximum(np.maximum(next_nearest, within), 1e-12), 0.0)
    return float(scores.mean())
