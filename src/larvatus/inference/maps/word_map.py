"""A map of words (Fig. 11.7; Coenen et al. 2019): instances → contextual vectors → points in the plane, and clusters.

    sample = find_instances(documents, ["bank"], FindOptions())
    result = map_instances(encoder, tokenizer, sample, MapOptions(layers="last4"))
    result.points, result.clusters, result.notes

`picture.py` draws it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Count, SmallSeed
from larvatus.core.settings import Settings
from larvatus.core.tables import Tabular, spreadsheet_cell
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.maps.clusters import (
    MAX_CLUSTERS,
    Method,
    can_cluster,
    cluster,
    context_words,
    project,
    typical_words,
)
from larvatus.inference.maps.instances import CorpusInstance, InstanceSample
from larvatus.inference.vectors.layers import Layers, LayerWeights, layers_label, layers_name
from larvatus.inference.vectors.pooling import EmbedOptions, Pool
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder


class MapOptions(Settings):
    layers: Layers = "last"
    """See `inference/vectors/layers.py`."""
    pool: Pool = "mean"
    """Pooling of subwords."""
    standardise: Standardiser | None = None
    """Scale each dimension to mean 0 and standard deviation 1 first (eq. 11.12)."""
    method: Method = "auto"
    """auto uses UMAP if it is installed."""
    clusters: Count = MAX_CLUSTERS
    """Most clusters; 1 for none."""
    seed: SmallSeed = 0


@dataclass(frozen=True, eq=False, repr=False)
class WordMap(Tabular):
    """N instances in the plane."""

    words: tuple[str, ...]
    instances: tuple[CorpusInstance, ...]
    points: npt.NDArray[np.float64]
    """[N, 2]"""
    method: str
    clusters: tuple[str, ...] | None
    """[N] name of each instance's cluster; None without clustering."""
    total: int
    """Instances in the corpus."""
    documents: int
    tokens: int
    """Tokens of their sentences, all of which were read."""
    notes: tuple[str, ...] = ()
    """Notes on the method, such as a missing library."""

    def fields(self, label: str = "label") -> dict[str, list[str]]:
        """Fields that points can be coloured by, with the value of each point."""
        columns: dict[str, list[str]] = {}
        if any(instance.label is not None for instance in self.instances):
            columns[label] = [instance.label or "none" for instance in self.instances]
        if self.clusters is not None:
            columns.setdefault("cluster", list(self.clusters))
        columns.setdefault("language", [instance.language or "not said" for instance in self.instances])
        columns.setdefault("word", [instance.word for instance in self.instances])
        columns.setdefault("source", [instance.source for instance in self.instances])
        return columns

    def to_dict(self, label: str = "label") -> dict[str, Any]:
        columns = self.fields(label)
        return {
            "words": list(self.words),
            "method": self.method,
            "instances": self.total,
            "documents": self.documents,
            "tokens": self.tokens,
            "notes": list(self.notes),
            "points": [
                {
                    "x": round(float(x), 5),
                    "y": round(float(y), 5),
                    "text": instance.text,
                    "start": instance.start,
                    "end": instance.end,
                    "line": instance.line,
                    **{name: values[number] for name, values in columns.items()},
                }
                for number, (instance, (x, y)) in enumerate(zip(self.instances, self.points.tolist(), strict=True))
            ],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each point."""
        return list(self.to_dict()["points"])

    def to_csv(self, label: str = "label") -> str:
        """The points as CSV; text that a spreadsheet would read as a formula begins with an apostrophe."""
        rows = [{name: spreadsheet_cell(value) for name, value in row.items()} for row in self.to_dict(label)["points"]]
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def __repr__(self) -> str:
        return f"<WordMap of {', '.join(self.words)}: {len(self.instances):,} instances by {self.method}>"


def map_instances(encoder: Encoder, tokenizer: Tokenizer, sample: InstanceSample, options: MapOptions) -> WordMap:
    if LayerWeights.read(options.layers, layers=encoder.depth).stacked:
        raise UsageError("a map needs one vector for each instance, and layers = all gives several; name a mix")
    vectors, tokens = instance_vectors(encoder, tokenizer, sample.instances, options)
    has_vector = ~np.isnan(vectors[:, 0])  # a missing vector is NaN throughout
    instances = [instance for instance, has in zip(sample.instances, has_vector.tolist(), strict=True) if has]
    vectors = vectors[has_vector]
    notes = []
    if len(instances) < len(sample.instances):
        notes.append(
            f"{len(sample.instances) - len(instances):,} instances have no vector: the vocabulary deletes them whole"
        )
    if (layers := layers_name(options.layers)) != "last":
        notes.append(f"vectors of {layers_label(layers)}")
    flat = project(vectors, method=options.method, seed=options.seed)
    if flat.note:
        notes.append(f"principal components instead of UMAP: {flat.note}")
    clusters = None
    if options.clusters > 1 and can_cluster():
        clusters = _clusters(vectors, instances, options)
    elif options.clusters > 1:
        notes.append('no clusters: scikit-learn is not installed (pip install "larvatus[maps]")')
    return WordMap(
        words=tuple(dict.fromkeys(word for word, _ in sample.totals)),
        instances=tuple(instances),
        points=flat.points,
        method=flat.method,
        clusters=clusters,
        total=sample.total,
        documents=sample.documents,
        tokens=tokens,
        notes=tuple(notes),
    )


def _clusters(
    vectors: npt.NDArray[np.float32], instances: list[CorpusInstance], options: MapOptions
) -> tuple[str, ...]:
    numbers = cluster(vectors, seed=options.seed, limit=options.clusters)
    targets = Counter(instance.text[instance.start : instance.end] for instance in instances)
    names = typical_words([context_words(instance.text, targets) for instance in instances], numbers)
    return tuple(names[number] for number in numbers.tolist())


def instance_vectors(
    encoder: Encoder, tokenizer: Tokenizer, instances: list[CorpusInstance], options: MapOptions
) -> tuple[npt.NDArray[np.float32], int]:
    """Vectors [N, D], NaN for an instance without one, and the number of tokens read. A sentence is read once."""
    places: dict[str, list[int]] = {}
    for number, instance in enumerate(instances):
        places.setdefault(instance.text, []).append(number)
    spans = [[(instances[number].start, instances[number].end) for number in numbers] for numbers in places.values()]
    embedding = EmbedOptions(unit="span", layers=options.layers, pool=options.pool, standardise=options.standardise)
    vectors = np.full((len(instances), encoder.width), np.nan, dtype=np.float32)
    tokens = 0
    for numbers, embedded in zip(
        places.values(), embed_texts(encoder, tokenizer, list(places), embedding, spans=spans), strict=True
    ):
        vectors[numbers] = embedded.vectors
        tokens += embedded.tokens
    return vectors, tokens
