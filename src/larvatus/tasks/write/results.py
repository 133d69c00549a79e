"""What a model that writes answers: the text, how likely it was, and why it ended.

written = model.predict("summarize: The house is small, and old, and far from here.")
written.written, written.log_probability, written.ended
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from larvatus.core import notebook
from larvatus.core.tabular import Tabular
from larvatus.tasks.results import Coverage, Piece


@dataclass(frozen=True, kw_only=True)
class Written(Tabular):
    """A text or pair with what the model wrote for it."""

    text: str
    pair: str | None = None
    written: str
    """What was written, without special tokens."""
    log_probability: float
    """Probability of all generated tokens together."""
    ended: Literal["end", "length"]
    """At the model's end token, or where it had written as many tokens as it may."""
    coverage: Coverage

    def _repr_html_(self) -> str:
        title = self.text if self.pair is None else f"{self.text} ⟷ {self.pair}"
        row = (self.written, f"{self.log_probability:.2f}", self.ended)
        return notebook.table(("written", "log-probability", "ended by"), [row], title=title)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {"text": self.text}
        if self.pair is not None:
            record["pair"] = self.pair
        return {
            **record,
            "written": self.written,
            "log_probability": self.log_probability,
            "ended": self.ended,
            "tokens": self.coverage.tokens,
            "tokens_read": self.coverage.read,
            "windows": self.coverage.windows,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(self.written, "bold")
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.text if self.pair is None else f"{self.text} ⟷ {self.pair}")

    def __str__(self) -> str:
        return self.written
