"""Errors of requests, each with its HTTP status.

    raise NoSuchModel("there is no model 'law'; there are: english")       # 404

Other `LarvatusError`s of the library are 422: a text or an option cannot be used. The names of these classes are the
`type` in the JSON of an error. Messages to clients name files, never folders of this machine (`without_paths`).
"""

from __future__ import annotations

import os
import re
from typing import Any, ClassVar

from larvatus.core.errors import LarvatusError

LONGEST = 2_000
"""Characters of a message: it may quote a name that a client made up."""
TOP_FOLDERS = frozenset(os.listdir("/"))
"""Listed once: no request looks at the disk."""
INTERNAL = "the server failed on this input; its log says why"
_PATH = re.compile(r"""(?<![\w/.])/([^\s/'"`<>|:;,()\[\]]+)/[^\s'"`<>|:;,()\[\]]*""")


class RequestError(LarvatusError):
    """Base class of errors that a request is answered with."""

    status: ClassVar[int] = 422


class BadRequest(RequestError):
    """An empty request, or a body that is not JSON."""

    status = 400


class WrongBody(RequestError):
    """JSON with other fields or types than the route takes."""


class NoSuchModel(RequestError):
    status = 404


class OverLimit(RequestError):
    """More items, tokens or candidates than the server allows."""

    status = 422


class CannotDo(RequestError):
    """A model without the head that the operation needs."""

    status = 422


class QueueFull(RequestError):
    status = 429

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closing(RequestError):
    """The server is draining, or closed."""

    status = 503


class TimedOut(RequestError):
    status = 503


class Cancelled(RequestError):
    """The client has disconnected; nobody receives this error."""

    status = 499


class BodyTooLarge(RequestError):
    status = 413


class NotJSON(RequestError):
    """A body of another content type: a form, a file, compressed data."""

    status = 415


class TooSlow(RequestError):
    """A body that does not arrive in time."""

    status = 408


class NoKey(RequestError):
    status = 401


class WrongKey(RequestError):
    status = 403


class ForeignPage(RequestError):
    """A request that a page of another site made a browser send."""

    status = 403


def http_status(fault: BaseException) -> int:
    """The HTTP status of an error; 500 for unexpected ones."""
    if isinstance(fault, RequestError):
        return fault.status
    return 422 if isinstance(fault, LarvatusError) else 500


def error_body(fault: BaseException) -> dict[str, Any]:
    """The JSON of an error. It never holds a traceback, a path, or the message of an unexpected error."""
    expected = isinstance(fault, LarvatusError)
    message = without_paths(str(fault)) if expected else INTERNAL
    return {"error": {"type": type(fault).__name__ if expected else "InternalError", "message": message}}


def without_paths(message: str) -> str:
    """The message on one line, with the file name of each absolute path only, cut where it is very long.

    An absolute path begins with a folder that exists at the root of the file system; routes such as /v1/embed do not.

    >>> without_paths("cannot read '/usr/share/models/law.json'; GET /openapi.json lists all")
    "cannot read 'law.json'; GET /openapi.json lists all"
    """
    line = _PATH.sub(_file_name, " ".join(message.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _file_name(match: re.Match[str]) -> str:
    return match[0].rstrip("/").rpartition("/")[2] if match[1] in TOP_FOLDERS else match[0]
