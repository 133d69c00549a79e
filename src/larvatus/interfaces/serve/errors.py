"""Errors of requests: the HTTP status and JSON of each, and how errors are logged.

    raise NoSuchModel("there is no model 'law'; there are: english")       # 404

Other `LarvatusError`s of the library are 422: a text or an option cannot be used. The names of these classes are the
`type` in the JSON of an error. Messages to clients name files, never folders of this machine (`without_paths`).

Nothing that users send reaches a log: errors are logged by type and location. Python prints the message of a warning or
of an uncaught exception, and the message may quote a text, so a server runs within `quiet_logs()`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from larvatus.core.errors import LarvatusError, OtherLanguageWarning

LONGEST = 2_000
"""Characters of a message: it may quote a name that a client made up."""
TOP_FOLDERS = frozenset(os.listdir("/"))
"""Listed once: no request looks at the disk."""
INTERNAL = "the server failed on this input; its log has the reason"
_PATH = re.compile(r"""(?<![\w/.])/([^\s/'"`<>|:;,()\[\]]+)/[^\s'"`<>|:;,()\[\]]*""")


class RequestError(LarvatusError):
    """Base class of errors that a request is answered with."""

    status: ClassVar[int] = 422

    def __init_subclass__(cls, *, status: int = 422) -> None:
        cls.status = status


class BadRequest(RequestError, status=400):
    """An empty request, or a body that is not JSON."""


class WrongBody(RequestError):
    """JSON with other fields or types than the route takes."""


class NoSuchModel(RequestError, status=404):
    """The server has no model of this name."""


class NoSuchIndex(RequestError, status=404):
    """The server has no index of this name."""


class OverLimit(RequestError):
    """More items, tokens or candidates than the server allows."""


class CannotDo(RequestError):
    """A model without the head that the operation needs."""


class QueueFull(RequestError, status=429):
    """Too many requests run or wait."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closing(RequestError, status=503):
    """The server is draining, or closed."""


class TimedOut(RequestError, status=503):
    """No response within the timeout."""


class Cancelled(RequestError, status=499):
    """The client has disconnected; nobody receives this error."""


class BodyTooLarge(RequestError, status=413):
    """More bytes than the server allows."""


class NotJSON(RequestError, status=415):
    """A body of another content type: a form, a file, compressed data."""


class TooSlow(RequestError, status=408):
    """A body that does not arrive in time."""


class NoKey(RequestError, status=401):
    """A request without a key."""


class WrongKey(RequestError, status=403):
    """A key that the server does not know."""


class ForeignPage(RequestError, status=403):
    """A request that a page of another site made a browser send."""


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


logger = logging.getLogger("larvatus.serve")


def error_location(fault: BaseException) -> str:
    """Type of an error and its place in our code: enough to find it, with nothing of the request.

    >>> try: {}["a secret"]
    ... except KeyError as fault: print(error_location(fault).split(" at ")[0])
    KeyError
    """
    frames = traceback.extract_tb(fault.__traceback__)
    package = str(Path(__file__).parents[2])
    last = next(
        (frame for frame in reversed(frames) if frame.filename.startswith(package)), frames[-1] if frames else None
    )
    where = "" if last is None else f" at {Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"
    return f"{type(fault).__name__}{where}"


@contextmanager
def quiet_logs() -> Iterator[None]:
    """While a server runs; the previous hooks are restored afterwards."""
    hook = threading.excepthook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherLanguageWarning)
        warnings.showwarning = _log_warning
        threading.excepthook = _log_thread_error
        for name in ("uvicorn.error", "uvicorn.access", "asyncio"):  # bad requests would fill the log
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            threading.excepthook = hook


def log_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`."""
    fault = context.get("exception")
    logger.error("%s in a task", "a fault" if fault is None else error_location(fault))


def _log_thread_error(given: threading.ExceptHookArgs) -> None:
    logger.error("%s in a thread", "a fault" if given.exc_value is None else error_location(given.exc_value))


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    logger.warning("%s at %s:%d", category.__name__, Path(filename).name, lineno)
