"""When a continuation ends: at an end token, at a text that the user named, or when it has its tokens.

>>> stopping = Stopping(ends=frozenset({3}), strings=("\\n",), text_of=lambda row, ids: "ab\\n"[: len(ids)])
>>> stopping.reason(0, [5, 6]), stopping.reason(0, [5, 6, 7]), stopping.reason(0, [5, 3])
(None, 'stop', 'end')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Reason = Literal["end", "stop", "length"]
"""Why a continuation ended: the model's end token, a text at which to stop, or the number of its tokens."""


@dataclass(frozen=True, eq=False)
class Stopping:
    ends: frozenset[int] = frozenset()
    """Tokens by which the model says that it is done."""
    strings: tuple[str, ...] = ()
    text_of: Callable[[int, Sequence[int]], str] | None = None
    """The text that these tokens add to a prompt; asked for where there are texts at which to stop."""

    def reason(self, prompt: int, ids: Sequence[int]) -> Reason | None:
        """Why a continuation of this prompt ends with its newest token; None where it goes on."""
        if ids and ids[-1] in self.ends:
            return "end"
        if self.strings and self.text_of is not None:
            text = self.text_of(prompt, ids)
            if any(string in text for string in self.strings):
                return "stop"
        return None

    def cut(self, text: str) -> str:
        """The text before the first of the strings."""
        places = [place for string in self.strings if (place := text.find(string)) >= 0]
        return text[: min(places)] if places else text
