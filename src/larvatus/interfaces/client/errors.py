"""The one error of the client: what a server refused, or an answer that is none."""

from __future__ import annotations

from typing import Any

from larvatus.core.errors import LarvatusError, printable

LONGEST_LINE = 500
"""Characters of what a server said, in an error."""


class ServerError(LarvatusError):
    """What a server refused, in its own words; or an answer that no Larvatus server gives.

    >>> ServerError("no model is called x", status=404, kind="not_found").status
    404
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 0 where the server did not answer at all, or one item of an answer failed."""
        self.kind = kind
        """The `type` of the server's error."""


def wrong_answer(address: str, why: str, *, status: int = 0) -> ServerError:
    """An answer of another shape than that of a Larvatus server."""
    return ServerError(
        f"{address} gave an answer that is no Larvatus server's ({_line(why)}); is the address right?", status=status
    )


def refusal(said: Any, status: int, *, otherwise: str) -> ServerError:
    """The error that an answer, or an item of one, describes.

    >>> refusal({"error": {"type": "full", "message": "the queue is full"}}, 429, otherwise="").kind
    'full'
    """
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return ServerError(otherwise, status=status)
    kind = error.get("type")
    return ServerError(_line(error["message"]), status=status, kind=_line(kind) if isinstance(kind, str) else "")


def _line(text: str) -> str:
    return printable(text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…")
