"""What a sentence encoder predicts for a text: a vector, a vector for each token, or weights of the vocabulary.

model.predict("The bank of the river.").vector              # [D] of a model with one vector for a text
model.predict("The bank of the river.").vectors             # [N, K] of a model with late vectors
model.predict("The bank of the river.").weights             # {"river": 1.93, "bank": 1.71, "water": 0.42, …}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.tables import Tabular
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.tasks.embed.compared import ComparedTexts, DenseTexts, SparseTexts, TokenTexts
from larvatus.tasks.results import Coverage, Piece

SHOWN = 4
"""Numbers of a vector that a line shows."""
SHOWN_TOKENS = 12
"""Tokens with their weights that a line shows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _ReadText(Tabular):
    """A text, and how much of it was read."""

    text: str
    coverage: Coverage

    def values(self) -> dict[str, Any]:
        """What the model gives for it."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        coverage = self.coverage
        read = {"tokens": coverage.tokens, "tokens_read": coverage.read, "windows": coverage.windows}
        return {"text": self.text, **self.values(), **read}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(str(self), "bold")
        yield Piece("  ")
        yield Piece(self.text)


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedText(_ReadText):
    """A text with its vector."""

    vector: Floats

    def values(self) -> dict[str, Any]:
        return {"vector": self.vector.tolist()}

    def __str__(self) -> str:
        numbers = " ".join(f"{value:+.3f}" for value in self.vector[:SHOWN])
        return f"[{numbers} …] {len(self.vector)} dimensions, length {float(np.linalg.norm(self.vector)):.3f}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectorText(_ReadText):
    """A text with a unit vector for each token, special tokens included."""

    vectors: Floats  # [N, K]

    def values(self) -> dict[str, Any]:
        return {"vectors": self.vectors.tolist()}

    def __str__(self) -> str:
        return f"{len(self.vectors)} vectors of {self.vectors.shape[1]} dimensions"


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseText(_ReadText):
    """A text with the weights above 0 of tokens of the vocabulary, the largest first."""

    weights: dict[str, float]

    def values(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def __str__(self) -> str:
        shown = list(self.weights.items())[:SHOWN_TOKENS]
        more = f" … {len(self.weights)} tokens" if len(self.weights) > len(shown) else ""
        return ", ".join(f"{token} {weight:.2f}" for token, weight in shown) + more


def embedded_text(
    text: str, vectors: ComparedTexts, number: int, *, vocabulary: Tokenizer, coverage: Coverage
) -> EmbeddedText | TokenVectorText | SparseText:
    """The result for one text of several whose vectors were computed."""
    if isinstance(vectors, TokenTexts):
        return TokenVectorText(text=text, coverage=coverage, vectors=vectors.text(number))
    if isinstance(vectors, SparseTexts):
        tokens, weights = vectors.text(number)
        order = np.lexsort((tokens, -weights))
        names = [vocabulary.token(int(token)) for token in tokens[order]]
        return SparseText(text=text, coverage=coverage, weights=dict(zip(names, weights[order].tolist(), strict=True)))
    assert isinstance(vectors, DenseTexts)
    return EmbeddedText(text=text, coverage=coverage, vector=vectors.vectors_UK[number])
