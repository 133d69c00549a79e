"""Cosine between word instances: "the *bank* of the river", "the *bank* raised its rates".

    result = similarities(encoder, tokenizer, [instance(text) for text in texts], EmbedOptions(unit="span"))
    result.matrix[0, 1]
    print(result)

The word is marked with stars, given by its characters, or named if it occurs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core import notebook
from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import Tabular
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.layers import layers_label, layers_name
from larvatus.inference.vectors.plan import MarkedText, mark_word, read_mark
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder

_CONTEXT = 30


@dataclass(frozen=True)
class WordInstance:
    """A word in its text."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]

    def __str__(self) -> str:
        left, right = self.text[max(0, self.start - _CONTEXT) : self.start], self.text[self.end : self.end + _CONTEXT]
        return " ".join(f"{left}*{self.word}*{right}".split())


def word_instance(text: str, span: tuple[int, int] | None = None, *, word: str | None = None) -> WordInstance:
    """The one word of a text: given by its characters, between stars, or named if nothing is marked."""
    if span is not None:
        start, end = span
        if not 0 <= start < end <= len(text):
            raise UsageError(f"a text of {len(text)} characters has no span {start}:{end}; give START:END inside it")
        return WordInstance(text, start, end)
    named = word is not None and "*" not in text
    marked: MarkedText = mark_word(text, word or "") if named else read_mark(text)
    return WordInstance(marked.text, *marked.spans[0])


@dataclass(frozen=True, eq=False, repr=False)
class Similarities(Tabular):
    """Cosines of N word instances with each other."""

    instances: tuple[WordInstance, ...]
    matrix: Floats
    """[N, N]"""
    layers: str = "last"
    """Layers that the vectors are of."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": self.layers,
            "instances": [
                {
                    "text": instance.text,
                    "word": instance.word,
                    "start": instance.start,
                    "end": instance.end,
                }
                for instance in self.instances
            ],
            "cosines": [[round(value, 6) for value in row] for row in self.matrix.tolist()],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each pair of instances, which are numbered from 1."""
        rows = []
        for i, first in enumerate(self.instances):
            for j, second in enumerate(self.instances[i + 1 :], start=i + 1):
                sides = {"first": i + 1, "second": j + 1, "first_word": first.word, "second_word": second.word}
                texts = {"first_text": first.text, "second_text": second.text}
                rows.append({**sides, "cosine": round(float(self.matrix[i, j]), 6), **texts})
        return rows

    def __str__(self) -> str:
        width = max(len(str(instance)) for instance in self.instances)
        rows = [
            f"{number:>3}  {instance!s:<{width}}  " + " ".join(f"{value:6.3f}" for value in row)
            for number, (instance, row) in enumerate(zip(self.instances, self.matrix.tolist(), strict=True), start=1)
        ]
        label = "" if self.layers == "last" else layers_label(self.layers)
        head = f"{label:<{7 + width}}" + " ".join(f"{number:>6}" for number in range(1, len(rows) + 1))
        return "\n".join([head, *rows])

    def _repr_html_(self) -> str:
        note = "cosines" if self.layers == "last" else f"cosines, {layers_label(self.layers)}"
        return notebook.heat([str(instance) for instance in self.instances], self.matrix.tolist(), note=note)

    def __repr__(self) -> str:
        return f"<Similarities of {len(self.instances)} word instances>"


def instance_vectors(
    encoder: Encoder, tokenizer: Tokenizer, instances: Sequence[WordInstance], options: EmbedOptions
) -> Floats:
    """Unit vectors, [N, D]. A word that the vocabulary deletes has none and is refused."""
    if options.unit != "span":
        raise UsageError(f'word instances are spans, not {options.unit}s; use unit="span"')
    if options.layers == "all":
        raise UsageError("a similarity is between two vectors, and layers = all gives several; name one layer or a mix")
    texts = [instance.text for instance in instances]
    spans = [[(instance.start, instance.end)] for instance in instances]
    embedded = list(embed_texts(encoder, tokenizer, texts, options, spans=spans))
    vectors = np.concatenate([text.vectors for text in embedded]) if embedded else np.empty((0, encoder.width))
    for instance, vector in zip(instances, vectors, strict=True):
        if not np.isfinite(vector).all() or not vector.any():
            raise DataError(
                f"{instance.word!r} has no vector: the vocabulary deletes all its characters; mark another word"
            )
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def similarities(
    encoder: Encoder, tokenizer: Tokenizer, instances: Sequence[WordInstance], options: EmbedOptions
) -> Similarities:
    """All cosines of two or more word instances."""
    if len(instances) < 2:
        raise UsageError(f"a similarity is between word instances; {len(instances)} was given, give 2 or more")
    unit = instance_vectors(encoder, tokenizer, instances, options).astype(np.float64)
    cosines = np.clip(unit @ unit.T, -1.0, 1.0).astype(np.float32)
    return Similarities(tuple(instances), cosines, layers_name(options.layers))
