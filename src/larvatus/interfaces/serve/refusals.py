"""Why a request is refused: errors that know their status.

    raise NoSuchModel("there is no model 'law'; there are: english")       # 404

What the library itself refuses (a `LarvatusError`) is 422: the text or an option of it cannot be used.
"""

from __future__ import annotations

from typing import Any, ClassVar

from larvatus.core.errors import LarvatusError
from larvatus.interfaces.serve.paths import without_paths


class Refusal(LarvatusError):
    """Base: a request that is answered with an error."""

    status: ClassVar[int] = 422


class BadRequest(Refusal):
    """Nothing to work on, or no JSON."""

    status = 400


class WrongBody(Refusal):
    """JSON that says something else than what is asked for."""


class NoSuchModel(Refusal):
    status = 404


class OverLimit(Refusal):
    """More items, tokens or candidates than the server allows."""

    status = 422


class CannotDo(Refusal):
    """A model without the head that is asked for."""

    status = 422


class QueueFull(Refusal):
    status = 429

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closing(Refusal):
    """The server drains, or is gone."""

    status = 503


class TimedOut(Refusal):
    status = 503


class Cancelled(Refusal):
    """The client is gone; nobody reads this."""

    status = 499


INTERNAL = "the server failed on this input; its log says why"


def status_of(fault: BaseException) -> int:
    """500 for what nobody foresaw."""
    if isinstance(fault, Refusal):
        return fault.status
    return 422 if isinstance(fault, LarvatusError) else 500


def error_of(fault: BaseException) -> dict[str, Any]:
    """What is answered: never a traceback, a path, nor the words of an error that nobody foresaw."""
    foreseen = isinstance(fault, LarvatusError)
    message = without_paths(str(fault)) if foreseen else INTERNAL
    return {"error": {"type": type(fault).__name__ if foreseen else "InternalError", "message": message}}
