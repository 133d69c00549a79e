"""What a model that chooses answers: the ending, and a probability for each.

chosen = model.predict(("He opened the door.", ["He flew away.", "He went in."]))
chosen.choice, chosen.ending, chosen.probability
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from larvatus.core import notebook
from larvatus.core.tabular import Tabular
from larvatus.tasks.results import Coverage, Piece, best


@dataclass(frozen=True, kw_only=True)
class Chosen(Tabular):
    """A context with the likeliest of its endings."""

    context: str
    choice: int
    """The number of the ending, from 0."""
    probabilities: dict[str, float]
    """Probability of every ending, in the order in which they were given."""
    coverage: Coverage

    @property
    def endings(self) -> tuple[str, ...]:
        return tuple(self.probabilities)

    @property
    def ending(self) -> str:
        """The text of the ending."""
        return self.endings[self.choice]

    @property
    def probability(self) -> float:
        """Probability of the ending."""
        return self.probabilities[self.ending]

    def _repr_html_(self) -> str:
        return notebook.bars(self.probabilities.items(), title=self.context, note=str(self))

    def to_dict(self) -> dict[str, Any]:
        coverage = self.coverage
        return {
            "context": self.context,
            "choice": self.choice,
            "ending": self.ending,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "tokens": coverage.tokens,
            "tokens_read": coverage.read,
            "windows": coverage.windows,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each ending, in the order in which they were given."""
        return [
            {
                "context": self.context,
                "number": number,
                "ending": ending,
                "probability": probability,
                "chosen": number == self.choice,
            }
            for number, (ending, probability) in enumerate(self.probabilities.items())
        ]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        for number, (ending, probability) in enumerate(best(self.probabilities, top or 1)):
            if number:
                yield Piece("  ")
            yield Piece(f"{self.endings.index(ending)} {probability:.3f} ", "bold")
            yield Piece(ending)
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.context)

    def __str__(self) -> str:
        return f"{self.choice}: {self.ending} {self.probability:.3f}"
