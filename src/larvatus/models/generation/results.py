"""Results of generation: small frozen objects that print well and convert to dicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from larvatus.core import notebook
from larvatus.core.tables import Tabular

Ending = Literal["end", "stop", "length", "context"]


@dataclass(frozen=True)
class Continuation:
    """One continuation of a prompt."""

    text: str
    """The added text, up to the end or to a stop text."""
    whole: str
    """With the prompt before it, if the text continues it; the output of an encoder–decoder is a text of its own."""
    ids: tuple[int, ...]
    """All generated tokens, including an end token."""
    log_probability: float
    """Log-probability of these tokens given the prompt, by the model itself, whatever the temperature."""
    ended: Ending
    """Reason for the end: the model's `end` token, a `stop` text, max_tokens (`length`), or a full `context` of the
    model.
    """

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "whole": self.whole,
            "ids": list(self.ids),
            "log_probability": self.log_probability,
            "ended": self.ended,
        }

    def __str__(self) -> str:
        return self.whole


@dataclass(frozen=True)
class Generated(Sequence[Continuation], Tabular):
    """The continuations of a prompt: samples in the order of their numbers, beams best first."""

    prompt: str
    continuations: tuple[Continuation, ...]
    read: int
    """Tokens of the prompt, including special ones, all of which the model has read."""

    @property
    def text(self) -> str:
        """What the first continuation adds."""
        return self.continuations[0].text

    @overload
    def __getitem__(self, index: int) -> Continuation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Continuation, ...]: ...
    def __getitem__(self, index: int | slice) -> Continuation | tuple[Continuation, ...]:
        return self.continuations[index]

    def __len__(self) -> int:
        return len(self.continuations)

    def __iter__(self) -> Iterator[Continuation]:
        return iter(self.continuations)

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "continuations": [each.to_dict() for each in self.continuations],
            "read": self.read,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each continuation, without token ids."""
        rows = []
        for number, each in enumerate(self.continuations, start=1):
            record = {name: value for name, value in each.to_dict().items() if name != "ids"}
            rows.append({"prompt": self.prompt, "number": number, **record})
        return rows

    def _repr_html_(self) -> str:
        rows = [(each.whole, f"{each.log_probability:.2f}", each.ended) for each in self]
        return notebook.table(("text", "log-probability", "ended by"), rows, title=self.prompt)

    def __str__(self) -> str:
        return "\n".join(each.whole for each in self)
