"""What generating gives back: small frozen objects that print well and turn into dicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from larvatus.core import notebook
from larvatus.core.tabular import Tabular

Ending = Literal["end", "stop", "length", "context"]


@dataclass(frozen=True)
class Continuation:
    """One way to go on with a prompt."""

    text: str
    """What was added, up to the end or to a text at which to stop."""
    whole: str
    """With the prompt before it, where the text goes on from there; that of an encoder–decoder is a text of its own."""
    ids: tuple[int, ...]
    """All tokens that were written, an end token included."""
    log_probability: float
    """Of these tokens given the prompt, by the model itself, whatever the temperature."""
    ended: Ending
    """At the model's `end` token, at a text at which to `stop`, after max_tokens (`length`), or where the model's
    `context` was full."""

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
    """Tokens of the prompt, special ones included, all of which the model has read."""

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
