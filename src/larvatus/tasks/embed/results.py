"""What a sentence encoder predicts: a vector.

found = model.predict("The bank of the river.")
found.vector.shape, found.coverage.windows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.tabular import Tabular
from larvatus.tasks.results import Coverage, Piece

SHOWN = 4
"""Numbers of a vector that a line shows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedText(Tabular):
    """A text with its vector."""

    text: str
    vector: Floats
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        coverage = self.coverage
        return {
            "text": self.text,
            "vector": self.vector.tolist(),
            "tokens": coverage.tokens,
            "tokens_read": coverage.read,
            "windows": coverage.windows,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row; the vector is a list."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(str(self), "bold")
        yield Piece("  ")
        yield Piece(self.text)

    def __str__(self) -> str:
        numbers = " ".join(f"{value:+.3f}" for value in self.vector[:SHOWN])
        return f"[{numbers} …] {len(self.vector)} dimensions, length {float(np.linalg.norm(self.vector)):.3f}"
