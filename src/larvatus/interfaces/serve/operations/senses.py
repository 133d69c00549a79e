"""Word senses: `{"texts": ["the *bank* of the river", …]}` → clusters, points in the plane, nearest pairs.

Where the server was started with sense vectors of the model (`--senses DIR`), each word also gets its sense of WordNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from larvatus.core.arrays import Doubles, Ints
from larvatus.inference.maps.clusters import context_words, typical_words
from larvatus.inference.maps.project import principal_components
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.similarity import Instance, instance_vectors
from larvatus.interfaces.serve.operations.instance_clusters import clusters
from larvatus.interfaces.serve.operations.operation import Item, Subject
from larvatus.interfaces.serve.operations.similar import (
    InstancesBody,
    OverInstances,
    described,
    instances_of,
    options_of,
)

NEAREST = 20
"""Pairs that are named."""


Number = Annotated[int, Meta(ge=1, le=64)]


class SensesBody(InstancesBody):
    """Texts, in each a word between stars, and how they are told apart."""

    clusters: Number | None = None
    """How many clusters; left out: as many as there seem to be."""


class Senses(OverInstances):
    name, title, Body = "senses", "Which uses of a word are alike: clusters, points, nearest pairs.", SensesBody
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
        "instances": [
            {"text": "the bank of the river", "word": "bank", "start": 4, "end": 8, "cluster": 0, "point": [0.4, -0.1]}
        ],
        "clusters": [{"number": 0, "size": 1, "name": "all"}],
        "nearest": [],
    }

    def run(self, subject: Subject, items: Sequence[Item], options: Any) -> list[dict[str, Any]]:
        return [self._told_apart(subject, body) for body in items]

    def _told_apart(self, subject: Subject, body: SensesBody) -> dict[str, Any]:
        model, instances = subject.model, instances_of(body)
        unit = instance_vectors(model.encoder, model.tokenizer, instances, options_of(subject, body)).astype(np.float64)
        numbers = clusters(unit, body.clusters)
        points = principal_components(unit, 2).tolist()
        told = [
            {**described(each), "cluster": int(number), "point": point}
            for each, number, point in zip(instances, numbers, points, strict=True)
        ]
        if subject.senses is not None:
            told = [
                {**record, "sense": _sense(subject.senses, each)} for record, each in zip(told, instances, strict=True)
            ]
        return {"instances": told, "clusters": _named(instances, numbers), "nearest": _nearest(unit)}


def _named(instances: Sequence[Instance], numbers: Ints) -> list[dict[str, Any]]:
    contexts = [context_words(each.text, [each.word]) for each in instances]
    sizes = np.bincount(numbers).tolist()
    names = typical_words(contexts, numbers)
    return [{"number": n, "size": size, "name": name} for n, (size, name) in enumerate(zip(sizes, names, strict=True))]


def _nearest(unit: Doubles) -> list[dict[str, Any]]:
    """Pairs by their cosine, the highest first."""
    first, second = np.triu_indices(len(unit), 1)
    cosines = np.clip((unit @ unit.T)[first, second], -1.0, 1.0)
    order = np.argsort(-cosines, kind="stable")[:NEAREST]
    return [{"pair": [int(first[n]), int(second[n])], "cosine": float(cosines[n])} for n in order]


def _sense(tagger: SenseTagger, each: Instance) -> dict[str, Any] | None:
    """WordNet's sense of the word; None where WordNet does not know it."""
    for word in tagger.tag(each.text):
        if word.start < each.end and each.start < word.end and word.key is not None:
            synset = None if word.synset is None else tagger.wordnet.synset(word.synset)
            return {**word.to_dict(), "definition": None if synset is None else synset.definition}
    return None
